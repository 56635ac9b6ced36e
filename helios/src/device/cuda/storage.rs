//! Storage from a core's file into device memory, through pinned memory, in bounded pieces.
//!
//! Several threads each read a piece of the file while the device still copies their last one, since one thread reads a
//! cached file several times slower than the device takes it.
#![expect(unsafe_code, reason = "copies write device memory, which Rust cannot see")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::context::Context;
use super::stream::{Event, Pinned, Stream};
use crate::device::DeviceError;

/// Two of these are pinned for each thread.
const PIECE_BYTES: u64 = 8 << 20;
const THREADS_MAX: usize = 8;

/// Bytes of a file and where they go.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    pub offset_bytes: u64,
    pub bytes: u64,
    pub destination: u64,
}

/// Copies every transfer and waits for the end. Destinations are backed and used by nothing else meanwhile.
pub fn upload(context: &Arc<Context>, file: &File, transfers: &[Transfer]) -> Result<(), DeviceError> {
    let pieces: Vec<Transfer> = transfers.iter().flat_map(|transfer| split(*transfer)).collect();
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(THREADS_MAX));
    let next = AtomicU64::new(0);
    let lane = || Lane::new(context)?.run(file, &pieces, &next);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(pieces.len())).map(|_| scope.spawn(lane)).collect();
        let mut outcome = lane();
        for other in others {
            outcome = outcome.and(other.join().expect("a lane does not panic"));
        }
        outcome
    })
}

fn split(transfer: Transfer) -> impl Iterator<Item = Transfer> {
    (0..transfer.bytes.div_ceil(PIECE_BYTES)).map(move |index| {
        let start = index * PIECE_BYTES;
        Transfer {
            offset_bytes: transfer.offset_bytes + start,
            bytes: PIECE_BYTES.min(transfer.bytes - start),
            destination: transfer.destination + start,
        }
    })
}

/// One thread's stream and its two pieces of pinned memory, used in turn.
struct Lane {
    stream: Stream,
    halves: [(Pinned, Event); 2],
}

impl Lane {
    fn new(context: &Arc<Context>) -> Result<Self, DeviceError> {
        context.bind()?;
        let half = || Ok((Pinned::new(context, PIECE_BYTES as usize)?, Event::new(context)?));
        Ok(Self { stream: Stream::new(context)?, halves: [half()?, half()?] })
    }

    /// Takes pieces until there are none.
    fn run(mut self, file: &File, pieces: &[Transfer], next: &AtomicU64) -> Result<(), DeviceError> {
        for turn in 0usize.. {
            let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed) as usize) else { break };
            let (pinned, copied) = &mut self.halves[turn % 2];
            copied.synchronize()?;
            let bytes = &mut pinned[..piece.bytes as usize];
            file.read_exact_at(bytes, piece.offset_bytes)
                .map_err(|error| crate::device::io_error("reading the core's storage", &error))?;
            // SAFETY: the piece's memory is left alone until `copied` says that it was copied, and nothing else uses the
            // destination.
            unsafe { self.stream.upload(piece.destination, bytes) }?;
            copied.record(&self.stream)?;
        }
        self.stream.synchronize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_transfer_once_and_in_order() {
        let whole = Transfer { offset_bytes: 4096, bytes: 2 * PIECE_BYTES + 5, destination: 1 << 40 };
        let pieces: Vec<Transfer> = split(whole).collect();
        assert_eq!(pieces.iter().map(|piece| piece.bytes).collect::<Vec<_>>(), [PIECE_BYTES, PIECE_BYTES, 5]);
        let last = pieces[2];
        assert_eq!(last.offset_bytes - 4096, 2 * PIECE_BYTES);
        assert_eq!(last.destination - (1 << 40), 2 * PIECE_BYTES);
        assert_eq!(split(Transfer { bytes: 0, ..whole }).count(), 0);
    }
}
