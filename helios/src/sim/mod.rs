//! A simulated device and seeded workloads for the scheduler's tests.
//!
//! [`model::Model`] keeps the state that programs keep: request fields, histogram, and pages that hold the very tokens
//! that were written to them. A sampled token is a function of what the pages say the history is, so a page that two
//! requests share by mistake shows as a wrong token. [`device::SimDevice`] runs the scheduler's steps on it behind
//! delayed fences; the worker's tests run the same model behind the byte buffers of the contract.
//!
//! `FLARE_SIM_SEEDS=5000 cargo test sim` runs more seeds, `FLARE_SIM_SEED=17` replays one.

pub(crate) mod core;
pub(crate) mod device;
pub(crate) mod executor;
mod fairness;
pub(crate) mod model;
pub(crate) mod random;
mod tiers;
mod workload;
