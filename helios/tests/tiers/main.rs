//! The tiers of the prefix cache on a real device and through real crashes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod crash;
mod device;
#[path = "../cores/support.rs"]
mod support;

use helios::ids::Digest;

/// The digest of a name.
fn digest(name: &str) -> Digest {
    use sha2::Digest as _;
    Digest(sha2::Sha256::digest(name).into())
}

/// The bytes that belong to a digest.
fn content(name: Digest, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| name.0[index % 32] ^ (index / 32) as u8).collect()
}
