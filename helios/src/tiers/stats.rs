//! What the tiers hold and have done, for whoever watches.

/// Both tiers at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TierStats {
    pub memory: Counters,
    pub disk: Counters,
}

/// One tier: what it holds now, and what it has done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Whether the tier works at all: it was asked for and could be opened.
    pub is_on: bool,
    /// Whether the tier has stopped storing for now, because writing kept failing.
    pub is_degraded: bool,
    pub bytes: u64,
    pub budget_bytes: u64,
    pub checkpoints: u64,
    pub pages: u64,
    /// Restores that found their checkpoint here, and those that did not.
    pub hits: u64,
    pub misses: u64,
    pub stores: u64,
    pub store_failures: u64,
    /// Checkpoints that had to go, for room or because they were damaged.
    pub drops: u64,
}
