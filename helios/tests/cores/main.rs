//! Cores as files: what loads, what is refused and how, and what a loaded core does.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cuda;
mod execution;
mod fuzz;
mod refusals;
mod sizing;
mod support;
