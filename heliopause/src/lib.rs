//! Heliopause: what Ignition needs of Helios while it prepares a core.
//!
//! It hands Python memory at a core's fixed addresses, reads what was captured on a CUDA device, and loads and runs finished
//! cores with Helios' own loader. It owns no format and no policy: whatever it does is a call into Helios. The classes are
//! described for Python in `flare_heliopause.pyi`.

mod arena;
mod core;
mod cuda;
mod error;

#[pyo3::pymodule(gil_used = true)]
mod flare_heliopause {
    use helios::device::host::openmp;
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::arena::Arena;
    #[pymodule_export]
    use super::core::Core;
    #[pymodule_export]
    use super::cuda::{CapturedGraph, CudaArena, CudaDevice, CudaPool, CudaView, ModuleRecorder, read_graph};
    #[pymodule_export]
    use super::error::HeliopauseError;

    /// Teams that are started from here on wait as they do in `flare`, unless the user has decided how they wait.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let environment = module.py().import("os")?.getattr("environ")?;
        if !environment.contains(openmp::WAIT_POLICY)? {
            environment.call_method1("setdefault", (openmp::SPIN_COUNT, openmp::SPINS.to_string()))?;
        }
        Ok(())
    }
}
