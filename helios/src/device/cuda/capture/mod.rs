//! Reading what a process has captured: its CUDA graphs, and the images of the modules that their kernels are from.
//!
//! Only preparation uses this, through Heliopause; serving never captures. What is read is what a core holds: messages of
//! `core.proto`. Whatever these cannot hold is an error that names the node and its kind, so that nothing is lost silently.

mod attributes;
mod blocks;
mod cupti;
mod graph;
mod order;
mod recorder;

pub use blocks::Blocks;
pub use graph::{CapturedGraph, Spans, read_graph};
pub use recorder::ModuleRecorder;

use crate::device::DeviceError;

/// Why a captured graph cannot become a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// A node that a core cannot hold.
    #[error("node {node} of the graph is {kind}, which a core cannot hold; capture without it")]
    Kind { node: usize, kind: String },
    /// A kernel whose code is not known.
    #[error(
        "node {node} of the graph launches `{symbol}`, which {reason}; start the recorder before CUDA is initialized"
    )]
    Module { node: usize, symbol: String, reason: String },
    /// Memory that a loader would not put in place.
    #[error(
        "node {node} of the graph, {what}, uses memory at {address:#x}, which is in no open arena; allocate it from one"
    )]
    Memory { node: usize, what: String, address: u64 },
    /// CUPTI is not there or is in use.
    #[error("modules cannot be recorded: {reason}")]
    Recorder { reason: String },
    /// The driver refused to say something.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
