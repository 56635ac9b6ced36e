//! Device memory at fixed addresses, for the tensors of a core in preparation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use helios::device::DeviceError;
use helios::device::cuda::context::Context;
use helios::device::cuda::range::{Range, Reservation};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{HeliopauseError, raise};

/// Addresses and lengths of every open arena, which captured graphs may refer to.
static OPEN: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// The ranges of every open arena.
pub fn open_ranges() -> Vec<(u64, u64)> {
    lock(&OPEN).clone()
}

/// A reserved range of device addresses whose first bytes are backed.
#[pyclass(frozen, module = "flare_heliopause")]
pub struct CudaArena {
    memory: Mutex<Option<Arc<Memory>>>,
    address: u64,
    bytes: u64,
}

/// An arena's memory, which views and pools keep in place.
pub struct Memory {
    context: Arc<Context>,
    range: Mutex<Range>,
    address: u64,
}

/// Backed bytes of an arena.
#[pyclass(frozen, module = "flare_heliopause")]
pub struct CudaView {
    address: u64,
    bytes: u64,
    _memory: Arc<Memory>,
}

#[pymethods]
impl CudaArena {
    #[new]
    fn new(address: u64, nbytes: u64) -> PyResult<Self> {
        let context = Context::open().map_err(raise)?;
        let reservation = Reservation::new(&context, address, nbytes).map_err(raise)?;
        let range = Range::new(&reservation, address, nbytes);
        let bytes = range.bytes();
        lock(&OPEN).push((address, bytes));
        let memory = Arc::new(Memory { context, range: Mutex::new(range), address });
        Ok(Self { memory: Mutex::new(Some(memory)), address, bytes })
    }

    #[getter]
    fn address(&self) -> u64 {
        self.address
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.bytes
    }

    #[getter]
    fn backed_bytes(&self) -> PyResult<u64> {
        Ok(self.memory()?.backed_bytes())
    }

    fn back(&self, py: Python<'_>, nbytes: u64) -> PyResult<()> {
        let memory = self.memory()?;
        py.detach(|| memory.back(nbytes)).map_err(raise)
    }

    fn view(&self, offset: u64, nbytes: u64) -> PyResult<CudaView> {
        let memory = self.memory()?;
        let address = lock(&memory.range).locate(offset, nbytes).map_err(raise)?;
        Ok(CudaView { address, bytes: nbytes, _memory: memory })
    }

    fn close(&self) -> PyResult<()> {
        let mut memory = lock(&self.memory);
        let Some(held) = memory.take() else { return Ok(()) };
        match Arc::try_unwrap(held) {
            Ok(held) => {
                drop(held);
                Ok(())
            }
            Err(held) => {
                let others = Arc::strong_count(&held) - 1;
                *memory = Some(held);
                Err(HeliopauseError::new_err(format!(
                    "the arena at {:#x} has {others} views and pools; release every tensor and pool before closing it",
                    self.address
                )))
            }
        }
    }

    fn __repr__(&self) -> String {
        format!("CudaArena(address={:#x}, nbytes={})", self.address, self.bytes)
    }
}

impl CudaArena {
    pub fn memory(&self) -> PyResult<Arc<Memory>> {
        lock(&self.memory).clone().ok_or_else(|| HeliopauseError::new_err("the arena is closed"))
    }
}

impl Memory {
    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn bytes(&self) -> u64 {
        lock(&self.range).bytes()
    }

    pub fn backed_bytes(&self) -> u64 {
        lock(&self.range).backed_bytes()
    }

    /// Backs at least the first `bytes`.
    pub fn back(&self, bytes: u64) -> Result<(), DeviceError> {
        self.context.bind()?;
        lock(&self.range).back(bytes)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        lock(&OPEN).retain(|&(address, _)| address != self.address);
    }
}

#[pymethods]
impl CudaView {
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("shape", (self.bytes,))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (self.address, false))?;
        interface.set_item("strides", py.None())?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }
}

/// Locks over plain data, which is whole whatever a holder's panic did.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
