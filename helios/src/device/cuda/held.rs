//! What the device holds of short buffers that the runtime alone writes.
//!
//! Pure bookkeeping: the lanes of a running batch are the same for many steps, and are sent once.

use crate::core::contract::{Buffer, ValueSource};
use crate::device::BufferId;

/// Longer buffers change with every use, and comparing them would take as long as copying.
const BYTES_MAX: u64 = 4096;

/// A copy of each short buffer, by index.
pub struct Held {
    buffers: Vec<Option<Box<[u8]>>>,
    is_known: bool,
}

impl Held {
    /// Of buffers that are zero-filled.
    pub fn new(buffers: &[Buffer]) -> Self {
        // Of the page table, which lives as long as requests do, the runtime sends what changes and nothing else.
        let is_held = |buffer: &&Buffer| {
            buffer.source.is_uploaded()
                && buffer.source != ValueSource::PageTable
                && buffer.bytes <= BYTES_MAX
        };
        let copy = |buffer: &Buffer| {
            Some(buffer).filter(is_held).map(|buffer| vec![0; buffer.bytes as usize].into_boxed_slice())
        };
        Self { buffers: buffers.iter().map(copy).collect(), is_known: true }
    }

    /// Whether the device is known to hold `bytes` at `offset_bytes` of a buffer, which has them.
    pub fn is(&self, buffer: BufferId, offset_bytes: u64, bytes: &[u8]) -> bool {
        let held = self.buffers[buffer.0 as usize].as_ref().filter(|_| self.is_known);
        let start = offset_bytes as usize;
        held.is_some_and(|held| held[start..start + bytes.len()] == *bytes)
    }

    /// Notes what the device holds from now on.
    pub fn becomes(&mut self, buffer: BufferId, offset_bytes: u64, bytes: &[u8]) {
        if let Some(held) = &mut self.buffers[buffer.0 as usize] {
            let start = offset_bytes as usize;
            held[start..start + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Something else has written to the device's memory: nothing is known any more.
    pub fn forget(&mut self) {
        self.is_known = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::contract::DataType;

    fn held() -> Held {
        let buffer =
            |source, bytes| Buffer { source, address: 0, bytes, data_type: DataType::U8, shape: vec![bytes] };
        Held::new(&[
            buffer(ValueSource::LaneSlots, 8),
            buffer(ValueSource::PageTable, 8),
            buffer(ValueSource::Completion, 8),
            buffer(ValueSource::AdmissionPrompt, BYTES_MAX + 1),
        ])
    }

    #[test]
    fn only_what_differs_is_not_held() {
        let (mut held, slots) = (held(), BufferId(0));
        assert!(held.is(slots, 0, &[0; 8]));
        assert!(!held.is(slots, 2, &[1, 2]));
        held.becomes(slots, 2, &[1, 2]);
        assert!(held.is(slots, 0, &[0, 0, 1, 2, 0, 0, 0, 0]));
        assert!(held.is(slots, 3, &[2, 0]));
        assert!(!held.is(slots, 2, &[2, 0]));
        held.forget();
        assert!(!held.is(slots, 3, &[2, 0]));
    }

    #[test]
    fn what_programs_write_or_is_long_is_never_held() {
        let mut held = held();
        for index in 1..4 {
            held.becomes(BufferId(index), 0, &[0; 8]);
            assert!(!held.is(BufferId(index), 0, &[0; 8]));
        }
    }
}
