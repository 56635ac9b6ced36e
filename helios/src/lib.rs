//! Helios loads a runtime core and serves it: memory, scheduling, cache ownership, replay and HTTP.
//!
//! It owns everything between a request's bytes and the prepared programs, and computes no model: it packs request
//! metadata, launches programs and reads completion records. It contains no Python and knows neither of its callers
//! (`flare`, `heliopause`).
//!
//! `server` → `runtime` → {`schedule`, `cache`, `device`, `core`}. `schedule` and `cache` are sans-IO.

pub mod cache;
pub mod core;
pub mod device;
pub mod ids;
pub mod memory;
pub mod runtime;
pub mod schedule;
pub mod server;
pub mod sim;
pub mod text;
