//! The tiers of the prefix cache: copies of published checkpoints in memory and on disk, and bringing them back.
//!
//! A checkpoint is a chain of complete pages and a row that together describe its consumed tokens. Tiers name both by the
//! digests that their caller gives, and know nothing else of them: not tokens, not requests, not the device's geometry
//! beyond two sizes. Storing writes through: to memory, then to disk. Restoring looks in the same order.
//!
//! All of it runs on one thread ([`TierThread`]), which the model thread never waits for: commands are taken or refused
//! at once, and every command taken is answered by one event. Whatever fails here is answered with a [`TierError`] and
//! costs a computation, never a wrong token: bytes from disk are checked before the device sees them.
//!
//! Which checkpoints to store or restore, and what is pinned meanwhile, is the scheduler's to say.

mod access;
mod catalog;
mod disk;
mod error;
mod memory;
mod queue;
mod stats;
#[cfg(test)]
mod tests;
mod thread;
mod transfers;

use crate::device::Copier;
use crate::ids::{Digest, PageId, RowId, TransferId};

pub use disk::{DiskOptions, DiskTier};
pub use error::TierError;
pub use memory::{MemoryTier, Part};
pub use queue::{RESTORES_MAX, STORES_MAX};
pub use stats::{Counters, TierStats};
pub use thread::{StatsReader, TierThread};

/// Which tiers there are, as the user asked for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierOptions {
    /// What the memory tier may hold.
    pub memory_bytes: Option<u64>,
    pub disk: Option<DiskOptions>,
}

/// What a checkpoint consists of, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub key: Digest,
    /// The digest of its last whole block of tokens, for whoever rebuilds an index of what a former process stored.
    pub block: Digest,
    /// Tokens that the pages and the row describe.
    pub consumed: u32,
    /// The whole chain.
    pub pages: Vec<Digest>,
}

/// Sizes of what is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub page_bytes: usize,
    pub row_bytes: usize,
}

impl Geometry {
    pub fn of(copier: &dyn Copier) -> Self {
        Self { page_bytes: copier.page_bytes(), row_bytes: copier.row_bytes() }
    }
}

/// Copy a checkpoint out. Nothing may write its pages and its row until the answer comes or [`TierThread::abandon`] returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    pub transfer: TransferId,
    pub key: Digest,
    pub block: Digest,
    pub consumed: u32,
    /// The whole chain: where each page lies on the device, and its name.
    pub pages: Vec<(PageId, Digest)>,
    pub row: RowId,
}

/// Bring a checkpoint back. Nothing may read or write the destinations until the answer comes or [`TierThread::abandon`]
/// returns; unless the answer is success they hold anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    pub transfer: TransferId,
    pub key: Digest,
    /// Where to put the pages of the chain that the device lacks, and their names.
    pub pages: Vec<(PageId, Digest)>,
    pub row: RowId,
}

/// What the tier thread says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierEvent {
    /// A former process stored this checkpoint, and it can be restored. Comes before any answer.
    Listed(Checkpoint),
    /// Everything has been listed; comes once.
    AllListed,
    /// The answer to a [`Store`]: some tier holds the checkpoint, or why none does.
    Stored { transfer: TransferId, outcome: Result<(), TierError> },
    /// The answer to a [`Restore`].
    Restored { transfer: TransferId, outcome: Result<(), TierError> },
    /// No tier holds a checkpoint any more that was listed or stored. A restore that finds this out says so before its answer.
    Dropped { key: Digest },
    /// Nothing follows. Transfers without an answer have failed.
    Stopped,
}
