//! Recording the modules of the process, and reading its captured graphs.
#![expect(unsafe_code, reason = "a graph comes from Python as an address")]

use std::path::PathBuf;

use helios::device::cuda::capture::{self, Spans};
use helios::device::cuda::context::Context;
use prost::Message;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arena::open_ranges;
use crate::error::raise;

/// Where Python's packages hold CUPTI, below a folder of `sys.path`.
const CUPTI_PATHS: [&str; 3] = [
    "nvidia/cu13/lib/libcupti.so.13",
    "nvidia/cuda_cupti/lib/libcupti.so.13",
    "nvidia/cuda_cupti/lib/libcupti.so.12",
];

/// Keeps the images of modules that are loaded while it is started.
#[pyclass(frozen, module = "flare_heliopause")]
pub struct ModuleRecorder {
    recorder: capture::ModuleRecorder,
}

/// The kernels, nodes and edges of a captured graph, as encoded messages.
#[pyclass(frozen, module = "flare_heliopause")]
pub struct CapturedGraph {
    graph: capture::CapturedGraph,
}

#[pymethods]
impl ModuleRecorder {
    #[new]
    fn new() -> Self {
        Self { recorder: capture::ModuleRecorder::default() }
    }

    fn start(&self, py: Python<'_>) -> PyResult<()> {
        let folders: Vec<PathBuf> = py.import("sys")?.getattr("path")?.extract()?;
        let paths: Vec<PathBuf> =
            folders.iter().flat_map(|folder| CUPTI_PATHS.map(|path| folder.join(path))).collect();
        self.recorder.start(&paths).map_err(raise)
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.recorder.stop());
    }

    fn images<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        self.recorder.images().iter().map(|image| PyBytes::new(py, image)).collect()
    }
}

#[pymethods]
impl CapturedGraph {
    #[getter]
    fn kernels<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        encoded(py, &self.graph.kernels)
    }

    #[getter]
    fn nodes<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        encoded(py, &self.graph.nodes)
    }

    #[getter]
    fn edges<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        encoded(py, &self.graph.edges)
    }

    fn __repr__(&self) -> String {
        let capture::CapturedGraph { kernels, nodes, edges } = &self.graph;
        format!("CapturedGraph({} kernels, {} nodes, {} edges)", kernels.len(), nodes.len(), edges.len())
    }
}

/// Reads a `cudaGraph_t`.
#[pyfunction]
pub fn read_graph(cuda_graph: usize, recorder: &ModuleRecorder) -> PyResult<CapturedGraph> {
    let context = Context::open().map_err(raise)?;
    let spans = Spans::new(open_ranges());
    // SAFETY: the caller holds the graph, and the interpreter's lock is held meanwhile.
    let graph = unsafe { capture::read_graph(&context, cuda_graph, &recorder.recorder, &spans) };
    Ok(CapturedGraph { graph: graph.map_err(raise)? })
}

fn encoded<'py, M: Message>(py: Python<'py>, messages: &[M]) -> Vec<Bound<'py, PyBytes>> {
    messages.iter().map(|message| PyBytes::new(py, &message.encode_to_vec())).collect()
}
