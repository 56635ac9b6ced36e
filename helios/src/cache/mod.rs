//! Pages, rows and checkpoints: who owns them, who may reuse them. Sans-IO.
//!
//! A resource has two lives: the logical one ends when its owner releases it, the device's ends when every step that
//! can reference it is complete. [`pool::Pool`] hands a resource out again only after both. It must never guess: which
//! step is the last one is told by the scheduler, and completion is told by fences.
//!
//! A checkpoint is an immutable chain of complete pages and one snapshot row that together hold the state after a prefix.
//! [`PrefixCache`] keeps them by the prefix's name, shares their pages among requests, and gives up unused ones for room.

mod checkpoints;
mod evict;
mod index;
mod integrity;
pub mod pool;
mod prefix;

pub use checkpoints::{CacheStats, PrefixCache, Published};
pub use index::PrefixIndex;
pub use integrity::Holdings;
pub use pool::{IntegrityError, Owner, Pool};
pub use prefix::{BLOCK_TOKENS, Condition, History, PrefixChain, PrefixName};

use crate::ids::{PageId, SlotId, SnapshotId};

/// The KV pages of a device.
pub type PagePool = Pool<PageId>;
/// The request slots of a device.
pub type SlotPool = Pool<SlotId>;
/// The snapshot rows of a device.
pub type SnapshotPool = Pool<SnapshotId>;

#[cfg(test)]
mod tests;
