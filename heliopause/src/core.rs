//! A finished core, loaded and run as `flare` does it, one program at a time.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use helios::core::contract::BoundContract;
use helios::device::{Backing, BufferId, DeviceError, Inspect, ProgramId};
use helios::memory::PlacedCore;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{HeliopauseError, raise};

/// Longer than any program takes; a program that hangs is an error rather than a hung interpreter.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A core mapped at its addresses in this process, until it is closed or collected.
#[pyclass(frozen, module = "flare_heliopause")]
pub struct Core {
    contract: Arc<BoundContract>,
    backing: Backing,
    executor: Mutex<Option<Box<dyn Inspect>>>,
}

/// An element of one of the contract's lists, by its index or its name.
#[derive(FromPyObject)]
enum Key {
    Index(u32),
    Name(String),
}

#[pymethods]
impl Core {
    #[new]
    #[pyo3(signature = (path, *, rows=None, pages=None))]
    fn new(py: Python<'_>, path: PathBuf, rows: Option<u32>, pages: Option<u32>) -> PyResult<Self> {
        py.detach(|| {
            let core = helios::core::Core::open(&path).map_err(raise)?;
            let placed = PlacedCore::place(core, &mut |_| ()).map_err(raise)?;
            let contract = &placed.core.contract;
            let base_rows = contract.state.base_rows(contract.limits.requests_max);
            let all = backing_of_all_slots(contract);
            let backing = Backing { rows: rows.unwrap_or(all.rows), pages: pages.unwrap_or(all.pages) };
            if backing.rows < base_rows || backing.pages == 0 {
                let reason = format!("the core needs {base_rows} rows and one page at least");
                return Err(HeliopauseError::new_err(reason));
            }
            let (core, executor) = placed.back(backing).map_err(raise)?;
            Ok(Self { contract: core.contract, backing, executor: Mutex::new(Some(executor)) })
        })
    }

    #[getter]
    fn rows(&self) -> u32 {
        self.backing.rows
    }

    #[getter]
    fn pages(&self) -> u32 {
        self.backing.pages
    }

    fn programs(&self) -> Vec<String> {
        self.contract.programs.iter().map(|program| program.name.clone()).collect()
    }

    fn buffers(&self) -> Vec<(String, String, Vec<u64>)> {
        let describe = |buffer: &helios::core::contract::Buffer| {
            let data_type = buffer.data_type.as_str_name().trim_start_matches("DATA_TYPE_").to_lowercase();
            (source_name(buffer).to_owned(), data_type, buffer.shape.clone())
        };
        self.contract.buffers.iter().map(describe).collect()
    }

    fn regions(&self) -> Vec<(String, u64, u64)> {
        let regions = self.contract.regions.iter();
        regions.map(|region| (region.name.clone(), region.address, region.bytes)).collect()
    }

    fn upload(
        &self,
        py: Python<'_>,
        buffer: Key,
        offset_bytes: u64,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let buffer = BufferId(self.buffer(&buffer)?);
        let bytes = bytes_of(data)?;
        self.with(py, |executor| match executor.upload(buffer, offset_bytes, &bytes) {
            Err(DeviceError::Busy { .. }) => {
                executor.drain(TIMEOUT)?;
                executor.upload(buffer, offset_bytes, &bytes)
            }
            outcome => outcome,
        })
    }

    fn launch(&self, py: Python<'_>, program: Key) -> PyResult<()> {
        let program = self.program(&program)?;
        self.with(py, |executor| {
            let fence = executor.launch(program)?;
            executor.wait(fence, TIMEOUT)
        })
    }

    fn launch_early(&self, py: Python<'_>, program: Key, masks: &Bound<'_, PyAny>) -> PyResult<bool> {
        let program = self.program(&program)?;
        let buffer = BufferId(self.buffer(&Key::Name("GRAMMAR_MASKS".to_owned()))?);
        let bytes = bytes_of(masks)?;
        self.with(py, |executor| {
            let is_begun = executor.launch_early(program)?;
            // What was begun is launched in any case, and an upload that failed is reported then.
            let uploaded = executor.upload(buffer, 0, &bytes);
            let fence = executor.launch(program)?;
            executor.wait(fence, TIMEOUT)?;
            uploaded.map(|()| is_begun)
        })
    }

    #[pyo3(signature = (buffer, offset_bytes=0, nbytes=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        buffer: Key,
        offset_bytes: u64,
        nbytes: Option<u64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let index = self.buffer(&buffer)?;
        let whole = self.contract.buffers[index as usize].bytes;
        let nbytes = nbytes.unwrap_or(whole.saturating_sub(offset_bytes));
        self.read_with(py, nbytes, whole, |executor, into| {
            executor.drain(TIMEOUT)?;
            executor.read(BufferId(index), offset_bytes, into)
        })
    }

    fn read_region<'py>(
        &self,
        py: Python<'py>,
        region: Key,
        offset_bytes: u64,
        nbytes: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let index = self.region(&region)?;
        let whole = self.contract.regions[index].bytes;
        self.read_with(py, nbytes, whole, |executor, into| {
            executor.read_region(index, offset_bytes, into, TIMEOUT)
        })
    }

    fn write_region(
        &self,
        py: Python<'_>,
        region: Key,
        offset_bytes: u64,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let index = self.region(&region)?;
        let bytes = bytes_of(data)?;
        self.with(py, |executor| executor.write_region(index, offset_bytes, &bytes, TIMEOUT))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.executor.lock().expect("no holder of the lock panics").take()));
    }
}

impl Core {
    fn buffer(&self, key: &Key) -> PyResult<u32> {
        find("buffer", key, &self.contract.buffers, source_name)
    }

    fn program(&self, key: &Key) -> PyResult<ProgramId> {
        find("program", key, &self.contract.programs, |program| &program.name).map(ProgramId)
    }

    fn region(&self, key: &Key) -> PyResult<usize> {
        let index = find("region", key, &self.contract.regions, |region| &region.name)?;
        Ok(index as usize)
    }

    /// Runs `action` on the executor, without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        action: impl FnOnce(&mut dyn Inspect) -> Result<T, DeviceError> + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let mut executor = self.executor.lock().expect("no holder of the lock panics");
            let executor = executor.as_mut().ok_or_else(|| HeliopauseError::new_err("the core is closed"))?;
            action(&mut **executor).map_err(raise)
        })
    }

    /// Reads `nbytes` of something that has `whole` bytes.
    fn read_with<'py>(
        &self,
        py: Python<'py>,
        nbytes: u64,
        whole: u64,
        read: impl FnOnce(&mut dyn Inspect, &mut [u8]) -> Result<(), DeviceError> + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let length = usize::try_from(nbytes).ok().filter(|_| nbytes <= whole);
        let length = length.ok_or_else(|| {
            HeliopauseError::new_err(format!("{nbytes} bytes were asked for, and there are {whole}"))
        })?;
        let bytes = self.with(py, |executor| {
            let mut bytes = vec![0; length];
            read(executor, &mut bytes).map(|()| bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }
}

/// What all slots take at most: live rows and a snapshot each, and pages for whole contexts, as far as the regions reach.
fn backing_of_all_slots(contract: &BoundContract) -> Backing {
    let BoundContract { limits, state, regions, .. } = contract;
    let room = |region: u32, stride_bytes| {
        u32::try_from(regions[region as usize].bytes / stride_bytes).unwrap_or(u32::MAX)
    };
    let rows = state.base_rows(limits.requests_max) + limits.requests_max;
    let pages = limits.requests_max.saturating_mul(state.pages_per_request_max);
    Backing {
        rows: rows.min(room(state.rows_region, state.row_stride_bytes)),
        pages: pages.min(room(state.pages_region, state.page_stride_bytes)),
    }
}

fn source_name(buffer: &helios::core::contract::Buffer) -> &str {
    buffer.source.as_str_name().trim_start_matches("VALUE_SOURCE_")
}

/// The index of the element of `list` that `key` means.
fn find<'a, T>(kind: &str, key: &Key, list: &'a [T], name: impl Fn(&'a T) -> &'a str) -> PyResult<u32> {
    let found = match key {
        Key::Index(index) => ((*index as usize) < list.len()).then_some(*index),
        Key::Name(wanted) => {
            (0u32..).zip(list).find(|(_, element)| name(element) == wanted).map(|(index, _)| index)
        }
    };
    found.ok_or_else(|| {
        let wanted = match key {
            Key::Index(index) => index.to_string(),
            Key::Name(name) => format!("`{name}`"),
        };
        let names: Vec<&str> = list.iter().map(name).collect();
        HeliopauseError::new_err(format!("the core has no {kind} {wanted}; it has {}", names.join(", ")))
    })
}

/// A copy of a bytes-like object.
fn bytes_of(data: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    PyBuffer::<u8>::get(data)?.to_vec(data.py())
}
