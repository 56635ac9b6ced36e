//! Pages, rows and (later) checkpoints: who owns them, who may reuse them. Sans-IO.
//!
//! A resource has two lives: the logical one ends when its owner releases it, the device's ends when every step that
//! can reference it is complete. [`pool::Pool`] hands a resource out again only after both. It must never guess: which
//! step is the last one is told by the scheduler, and completion is told by fences.

pub mod pool;

pub use pool::{IntegrityError, Pool};

use crate::ids::{PageId, SlotId};

/// The KV pages of a device.
pub type PagePool = Pool<PageId>;
/// The request slots of a device.
pub type SlotPool = Pool<SlotId>;
