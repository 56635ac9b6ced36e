//! Copies between device memory and any memory of the process, that their caller waits for.
//!
//! They go through pinned memory, over a stream of their own, and are so ordered with nothing else.
#![expect(unsafe_code, reason = "copies use device memory, which Rust cannot see")]

use std::sync::Arc;

use super::context::Context;
use super::stream::{Pinned, Stream};
use crate::device::DeviceError;

/// Longer copies go in several pieces.
const PIECE_BYTES: usize = 4 << 20;

/// A stream and the pinned memory of one piece. The context is bound wherever this is used.
pub(super) struct Bounce {
    stream: Stream,
    pinned: Pinned,
}

impl Bounce {
    pub fn new(context: &Arc<Context>) -> Result<Self, DeviceError> {
        Ok(Self { stream: Stream::new(context)?, pinned: Pinned::new(context, PIECE_BYTES)? })
    }

    /// Reads from `source` on, where as many bytes were located in backed memory and nothing in flight writes.
    pub fn read(&mut self, mut source: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        for piece in into.chunks_mut(PIECE_BYTES) {
            let pinned = &mut self.pinned[..piece.len()];
            // SAFETY: the source is backed and at rest by the caller's promise, and the pinned bytes are looked at once the
            // stream is synchronized.
            unsafe { self.stream.download(source, pinned) }?;
            self.stream.synchronize()?;
            piece.copy_from_slice(&self.pinned[..piece.len()]);
            source += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes from `destination` on, where as many bytes were located in backed memory that nothing in flight uses.
    pub fn write(&mut self, mut destination: u64, from: &[u8]) -> Result<(), DeviceError> {
        for piece in from.chunks(PIECE_BYTES) {
            let pinned = &mut self.pinned[..piece.len()];
            pinned.copy_from_slice(piece);
            // SAFETY: the destination is backed and unused by the caller's promise, and the pinned bytes are left alone until the
            // stream is synchronized.
            unsafe { self.stream.upload(destination, pinned) }?;
            self.stream.synchronize()?;
            destination += piece.len() as u64;
        }
        Ok(())
    }
}
