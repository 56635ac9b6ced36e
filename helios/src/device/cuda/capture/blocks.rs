//! Which bytes of a range are taken, for an allocator over it: the lowest that fit are taken first, and neighbours that are free are one.

use std::collections::BTreeMap;

/// What torch aligns its blocks to.
const ALIGNMENT_BYTES: u64 = 512;

/// Blocks of a range that begins at 0.
#[derive(Default)]
pub struct Blocks {
    /// Length of each taken block, by its offset.
    taken: BTreeMap<u64, u64>,
    /// Where the highest block that was ever taken ended.
    highest: u64,
}

impl Blocks {
    /// Takes `bytes` within the first `limit`, or nothing where there is no gap.
    pub fn take(&mut self, bytes: u64, limit: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT_BYTES)?;
        let mut start = 0;
        for (&offset, &length) in &self.taken {
            if offset - start >= bytes {
                break;
            }
            start = offset + length;
        }
        let end = start.checked_add(bytes).filter(|&end| end <= limit)?;
        self.taken.insert(start, bytes);
        self.highest = self.highest.max(end);
        Some(start)
    }

    /// Gives the block at `offset` back, if there is one.
    pub fn give_back(&mut self, offset: u64) {
        self.taken.remove(&offset);
    }

    /// Where the highest block that was ever taken ended.
    pub fn highest(&self) -> u64 {
        self.highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_gap_that_fits_is_taken() {
        let mut blocks = Blocks::default();
        assert_eq!(
            [1, 512, 1024, 513].map(|bytes| blocks.take(bytes, 1 << 20)),
            [0, 512, 1024, 2048].map(Some)
        );
        assert_eq!(blocks.highest(), 3072);
        blocks.give_back(512);
        blocks.give_back(1024);
        // Two neighbours are one gap.
        assert_eq!(blocks.take(1536, 1 << 20), Some(512));
        blocks.give_back(0);
        assert_eq!(blocks.take(1024, 1 << 20), Some(3072));
        assert_eq!(blocks.take(0, 1 << 20), Some(0));
        assert_eq!(blocks.highest(), 4096);
    }

    #[test]
    fn nothing_is_taken_beyond_the_limit_or_given_back_twice() {
        let mut blocks = Blocks::default();
        assert_eq!(blocks.take(1025, 1024), None);
        assert_eq!(blocks.take(u64::MAX, u64::MAX), None);
        assert_eq!(blocks.highest(), 0);
        assert_eq!(blocks.take(1024, 1024), Some(0));
        assert_eq!(blocks.take(1, 1024), None);
        blocks.give_back(512);
        assert_eq!(blocks.take(1, 1024), None);
        blocks.give_back(0);
        blocks.give_back(0);
        assert_eq!(blocks.take(1024, 1024), Some(0));
    }
}
