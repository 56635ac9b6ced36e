//! CUDA for a core in preparation: device memory at fixed addresses, an allocator for torch over it, and captured graphs.
//!
//! Importing this module needs no driver; whatever does, loads it then.

mod arena;
mod capture;
mod device;
mod pool;

pub use arena::{CudaArena, CudaView};
pub use capture::{CapturedGraph, ModuleRecorder, read_graph};
pub use device::CudaDevice;
pub use pool::CudaPool;
