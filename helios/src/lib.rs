//! Helios loads a runtime core and serves it: memory, scheduling, cache ownership, replay and HTTP.
//!
//! It owns everything between a request's bytes and the prepared programs, and computes no model: it packs request
//! metadata, launches programs and reads completion records. It contains no Python and knows neither of its callers
//! (`flare`, `heliopause`).
//!
//! `server` → `runtime` → {`schedule`, `cache`, `tiers`, `device`, `core`}. `schedule` and `cache` are sans-IO.

pub mod cache;
pub mod core;
pub mod device;
#[cfg(feature = "serve")]
pub mod grammar;
pub mod ids;
pub mod memory;
#[cfg(feature = "serve")]
pub mod parse;
#[cfg(feature = "serve")]
pub mod runtime;
pub mod schedule;
#[cfg(feature = "serve")]
pub mod server;
#[cfg(test)]
mod sim;
#[cfg(feature = "serve")]
pub mod text;
#[cfg(feature = "serve")]
pub mod tiers;
