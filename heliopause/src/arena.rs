//! Memory at a fixed address, for the tensors of a core in preparation.
#![expect(unsafe_code, reason = "Python's buffer protocol hands out raw memory")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use helios::device::host::mapping::Mapping;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::{PyErr, ffi};

use crate::error::{HeliopauseError, raise};

/// Zero-filled memory at exactly the address that was asked for, as a writable buffer.
///
/// Not moved and not resized in its life. Views keep the arena alive, and an arena with views cannot be closed.
#[pyclass(frozen, module = "flare_heliopause")]
pub struct Arena {
    mapping: std::sync::Mutex<Option<Mapping>>,
    views: AtomicUsize,
    address: u64,
    bytes: u64,
}

#[pymethods]
impl Arena {
    #[new]
    fn new(address: u64, nbytes: u64) -> PyResult<Self> {
        let mapping = Mapping::zeroed(address, nbytes).map_err(raise)?;
        let views = AtomicUsize::new(0);
        Ok(Self { mapping: std::sync::Mutex::new(Some(mapping)), views, address, bytes: nbytes })
    }

    #[getter]
    fn address(&self) -> u64 {
        self.address
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.bytes
    }

    fn close(&self) -> PyResult<()> {
        let mut mapping = self.lock();
        match self.views.load(Ordering::Acquire) {
            0 => {
                drop(mapping.take());
                Ok(())
            }
            views => Err(HeliopauseError::new_err(format!(
                "the arena at {:#x} has {views} views; release every tensor and memoryview before closing it",
                self.address
            ))),
        }
    }

    /// # Safety
    /// `view` is Python's own out-parameter of the buffer protocol.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let arena = slf.get();
        let mapping = arena.lock();
        if mapping.is_none() {
            return Err(PyBufferError::new_err("the arena is closed"));
        }
        let length = isize::try_from(arena.bytes).map_err(|_| PyBufferError::new_err("too large"))?;
        let start = std::ptr::with_exposed_provenance_mut::<c_void>(arena.address as usize);
        // SAFETY: `view` is Python's; the memory stays mapped until the view is released, which `views` counts.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 0, flags) };
        if filled != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        arena.views.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// # Safety
    /// Python calls it once for each view that `__getbuffer__` filled.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.views.fetch_sub(1, Ordering::AcqRel);
    }

    fn __repr__(&self) -> String {
        format!("Arena(address={:#x}, nbytes={})", self.address, self.bytes)
    }
}

impl Arena {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Mapping>> {
        self.mapping.lock().expect("no holder of the lock panics")
    }
}
