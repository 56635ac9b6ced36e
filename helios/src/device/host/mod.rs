//! The host device: a core's memory and programs inside this process, on the machine's own processors.
//!
//! [`HostExecutor`] maps a core's regions at their addresses, loads its modules and runs its programs on one thread of its
//! own. Kernels are the core's machine code: they are trusted to touch nothing but the regions, as the digest that
//! covers them is trusted.

mod copier;
mod elf;
mod executor;
pub mod mapping;
mod module;
pub mod openmp;
pub mod processor;
mod program;
mod queue;
mod read_ahead;

pub use executor::HostExecutor;
