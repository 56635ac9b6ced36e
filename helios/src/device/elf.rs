//! Fields of 64-bit little-endian ELF images, which every device's modules are.

/// Bytes of an image's own header.
pub const HEADER_BYTES: usize = 64;

/// The 16-bit word at `at`, which lies within `bytes`.
pub fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The 64-bit word at `at`, which lies within `bytes`.
pub fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}
