//! The model thread: it feeds the scheduler, packs inputs, launches programs and delivers completions.
//!
//! [`engine`] is the handle that the server holds, [`worker`] the thread behind it, [`metrics`] what the thread observes.
//! The thread owns the device, the scheduler and every request's event sender; nothing else touches them. It must never
//! block on a client, spin without work, or change scheduler state on account of a record that it has not validated.

mod clock;
pub mod completion;
pub mod engine;
mod masks;
pub mod metrics;
pub mod pack;
mod places;
mod queue;
mod requests;
mod tiers;
pub mod worker;

#[cfg(test)]
mod steady_state;
#[cfg(test)]
mod tests;
