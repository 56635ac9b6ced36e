//! A small seeded generator (SplitMix64): equal seeds give equal runs on every machine.

/// Mixes a word so that equal inputs give equal, well-spread outputs.
pub(crate) fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// A number from `range`.
    pub(crate) fn within(&mut self, range: std::ops::RangeInclusive<u32>) -> u32 {
        let width = u64::from(range.end() - range.start()) + 1;
        range.start() + (self.word() % width) as u32
    }

    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.within(0..=99) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.within(0..=choices.len() as u32 - 1) as usize]
    }
}
