//! What the process's CUDA device is.

use std::sync::Arc;

use helios::device::cuda::context::Context;
use pyo3::prelude::*;

use crate::error::raise;

/// The device, with its primary context retained.
#[pyclass(frozen, module = "flare_heliopause")]
pub struct CudaDevice {
    context: Arc<Context>,
}

#[pymethods]
impl CudaDevice {
    #[new]
    fn new() -> PyResult<Self> {
        Ok(Self { context: Context::open().map_err(raise)? })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.context.properties().name
    }

    #[getter]
    fn compute_capability(&self) -> (u32, u32) {
        let properties = self.context.properties();
        (properties.compute_major, properties.compute_minor)
    }

    #[getter]
    fn multiprocessors(&self) -> u32 {
        self.context.properties().multiprocessors
    }

    #[getter]
    fn driver_version(&self) -> (i32, i32) {
        let version = self.context.properties().driver_version;
        (version / 1000, version % 1000 / 10)
    }

    #[getter]
    fn integrated(&self) -> bool {
        self.context.properties().is_integrated
    }

    fn memory(&self) -> PyResult<(u64, u64)> {
        self.context.bind().and_then(|()| self.context.memory()).map_err(raise)
    }
}
