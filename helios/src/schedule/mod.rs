//! Request lifecycle, admission and planning. Sans-IO: events and the time come in, plans go out.
//!
//! [`Scheduler::handle`] takes what happened, [`Scheduler::plan`] says what to submit next, and the outputs in between
//! say what requests are to be told. The same events give the same plans. It owns every page and slot through the pools
//! of [`crate::cache`], and knows a device only as [`Geometry`]: numbers, no model, no buffers, no clock.
//!
//! What it must never do: hand a page or slot to a second request while a submitted step can still reference it, let a
//! request wait for ever, or change anything on account of a completion that does not match what was submitted.

mod captures;
mod chunks;
mod completion;
mod event;
mod geometry;
mod integrity;
mod leave;
mod masks;
mod pages;
mod plan;
mod prefill;
mod queue;
mod scheduler;
mod sequence;
mod step;
mod transfers;

pub use completion::CompletionError;
pub use event::{Ending, Event, Finish, Output, Prompt, Record, Rejection, Status};
pub use geometry::{Capacity, Geometry, GeometryError, SchedulerLimits};
pub use prefill::PASSES_MAX;
pub use queue::BYPASSES_MAX;
pub use scheduler::{Scheduler, SchedulerStats};
pub use step::{Lane, Operation, PageUpdate, StateCopy, Step};
pub use transfers::{TransferOrder, TransferStats};

#[cfg(test)]
mod tests;
