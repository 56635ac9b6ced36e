//! The CUDA device: a core's memory at its addresses on a GPU, and its programs as CUDA graphs.
//!
//! The driver is loaded at run time ([`driver`]), so the same binary serves on machines without one. [`place::CudaCore`] puts
//! a core in place and [`executor::CudaExecutor`] runs it. Kernels are the core's machine code: they are trusted to touch
//! nothing but the regions, as the digest that covers them is trusted.

mod bounce;
pub mod capture;
pub mod context;
mod copier;
pub mod driver;
mod executor;
mod graph;
mod held;
mod in_flight;
mod memory;
mod module;
mod place;
mod program;
pub mod range;
mod storage;
mod stream;
mod timeline;

pub use executor::CudaExecutor;
pub use place::CudaCore;
