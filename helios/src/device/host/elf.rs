//! Whether bytes are a complete shared object, before the system's loader maps them.
//!
//! The loader trusts what it maps: a segment that reaches beyond the image's end would kill the process at first touch. What
//! the code does is not checked; its core's digest vouches for it.

use crate::device::elf::{HEADER_BYTES, half, long};

const MAGIC_64_BIT_LITTLE_ENDIAN: &[u8] = b"\x7fELF\x02\x01\x01";
const TYPE_SHARED_OBJECT: u16 = 3;
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
const PROGRAM_HEADER_BYTES: usize = 56;
const SEGMENT_LOADED: u32 = 1;

/// Checks an image's header and that its loaded segments lie within it.
pub fn check(image: &[u8]) -> Result<(), &'static str> {
    if image.len() < HEADER_BYTES || !image.starts_with(MAGIC_64_BIT_LITTLE_ENDIAN) {
        return Err("it is no 64-bit ELF image");
    }
    if half(image, 16) != TYPE_SHARED_OBJECT {
        return Err("it is no shared object");
    }
    if half(image, 18) != MACHINE {
        return Err("it is for another architecture");
    }
    if usize::from(half(image, 54)) != PROGRAM_HEADER_BYTES {
        return Err("its program headers have another size");
    }
    let table = usize::try_from(long(image, 32)).unwrap_or(usize::MAX);
    let table_end = table.checked_add(usize::from(half(image, 56)) * PROGRAM_HEADER_BYTES);
    let headers = table_end.and_then(|end| image.get(table..end)).ok_or("its program headers are cut off")?;
    for header in headers.chunks_exact(PROGRAM_HEADER_BYTES) {
        let loaded = header.starts_with(&SEGMENT_LOADED.to_le_bytes());
        let end = long(header, 8).checked_add(long(header, 32));
        if loaded && end.is_none_or(|end| end > image.len() as u64) {
            return Err("it is cut off");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_complete_and_its_start_is_not() {
        let image = std::fs::read("/proc/self/exe").unwrap();
        check(&image).unwrap();
        assert_eq!(check(&image[..8192]), Err("it is cut off"));
        assert_eq!(check(&image[..100]), Err("its program headers are cut off"));
        assert_eq!(check(&image[..10]), Err("it is no 64-bit ELF image"));
    }

    #[test]
    fn wrong_headers_are_named() {
        let image = std::fs::read("/proc/self/exe").unwrap();
        let changed = |at: usize, value: u8| {
            let mut image = image[..4096].to_vec();
            image[at] = value;
            check(&image)
        };
        assert_eq!(changed(4, 1), Err("it is no 64-bit ELF image"));
        assert_eq!(changed(16, 1), Err("it is no shared object"));
        assert_eq!(changed(18, 3), Err("it is for another architecture"));
        assert_eq!(changed(39, 255), Err("its program headers are cut off"));
    }
}
