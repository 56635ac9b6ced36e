//! Devices: memory at a core's fixed addresses and in-order execution of its programs.
//!
//! A device knows nothing of requests. Uploads and launches take effect in the order in which they are submitted;
//! a fence is passed once everything submitted before it is complete. All `unsafe` of Helios lives below here.

#[cfg(test)]
pub(crate) mod allocations;
mod copier;
pub mod cuda;
mod elf;
pub mod host;
mod part;

use std::time::Duration;

use crate::core::contract::BoundContract;

pub use copier::{Copier, Placement};

/// Uploads and launches that may be in flight at one time.
pub const COMMANDS_MAX: u32 = 256;

/// Room for the uploads of a few steps in flight, each of which may fill every buffer that is written before a launch.
const STAGED_STEPS: u64 = 4;
const STAGING_BYTES_MIN: u64 = 1 << 20;

/// Index of a buffer in the contract's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId(pub u32);

/// Index of a program in the contract's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProgramId(pub u32);

/// A point in the submission order; fences compare by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence(pub u64);

/// How much of the elastic regions is backed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backing {
    /// Null row, live rows and snapshot rows.
    pub rows: u32,
    pub pages: u32,
}

/// Executes one core's programs.
///
/// After construction nothing here allocates, compiles or calls into Python. Implementations bound the work in
/// flight: [`Executor::launch`] and [`Executor::upload`] report [`DeviceError::Busy`] beyond it.
pub trait Executor: Send {
    /// Copies `bytes` to `offset_bytes` within a buffer, before any launch submitted later. The bytes are taken now.
    fn upload(&mut self, buffer: BufferId, offset_bytes: u64, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Submits a program, or what [`Executor::launch_early`] has left of it.
    fn launch(&mut self, program: ProgramId) -> Result<Fence, DeviceError>;

    /// Submits those nodes of a program that come before the first one that reads grammar masks, and says whether it did: a device
    /// may run its programs whole. The masks' upload may follow, and nothing else before the program's launch.
    fn launch_early(&mut self, _program: ProgramId) -> Result<bool, DeviceError> {
        Ok(false)
    }

    /// Whether everything up to `fence` is complete.
    fn is_complete(&mut self, fence: Fence) -> Result<bool, DeviceError>;

    /// Blocks until `fence` is passed, or fails with [`DeviceError::Timeout`].
    fn wait(&mut self, fence: Fence, timeout: Duration) -> Result<(), DeviceError>;

    /// Reads `into.len()` bytes at `offset_bytes` of a buffer. The caller has waited for the fence that wrote them and
    /// has nothing in flight that writes them again.
    fn read(&mut self, buffer: BufferId, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError>;

    /// A copier of this device's pages and rows, for another thread. A device need not have one.
    fn copier(&self) -> Result<Box<dyn Copier>, DeviceError> {
        Err(DeviceError::NoCopier)
    }
}

/// An executor whose regions can be looked at and written to, for whoever examines a core rather than serve it.
pub trait Inspect: Executor {
    /// Blocks until everything submitted is complete.
    fn drain(&mut self, timeout: Duration) -> Result<(), DeviceError>;

    /// Reads `into.len()` bytes at `offset_bytes` of a region, by index, once everything submitted is complete.
    fn read_region(
        &mut self,
        region: usize,
        offset_bytes: u64,
        into: &mut [u8],
        timeout: Duration,
    ) -> Result<(), DeviceError>;

    /// Writes `bytes` at `offset_bytes` of a region, by index, once everything submitted is complete.
    fn write_region(
        &mut self,
        region: usize,
        offset_bytes: u64,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<(), DeviceError>;
}

/// Why a device could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The submission queue is full; wait for a fence and submit again.
    #[error("the device queue holds {in_flight_max} submissions already; wait for a fence first")]
    Busy { in_flight_max: u32 },
    /// A fence was not passed in time.
    #[error("the device did not pass a fence within {timeout_ms} ms")]
    Timeout { timeout_ms: u64 },
    /// An upload or read leaves its buffer.
    #[error("bytes {offset_bytes}..{end_bytes} leave buffer {buffer} of {buffer_bytes} bytes")]
    OutOfBounds { buffer: u32, offset_bytes: u64, end_bytes: u64, buffer_bytes: u64 },
    /// A core's fixed addresses belong to something else in this process.
    #[error(
        "{bytes} bytes at {address:#x} are in use in this process already; close the core that is loaded there, or use another process"
    )]
    AddressTaken { address: u64, bytes: u64 },
    /// A mapping that is not made of whole pages.
    #[error(
        "{bytes} bytes at {address:#x} are no memory range: both must be positive multiples of {alignment_bytes}"
    )]
    Misaligned { address: u64, bytes: u64, alignment_bytes: u64 },
    /// A copy leaves the memory that is mapped for it, or writes to what is read-only.
    #[error("{bytes} bytes at {address:#x} leave the memory that may be accessed there")]
    Unmapped { address: u64, bytes: u64 },
    /// A core's machine code could not be loaded.
    #[error("module `{module}` cannot be loaded: {reason}")]
    Module { module: String, reason: String },
    /// A kernel of a core is not what its launches take it for.
    #[error("kernel `{kernel}` {reason}")]
    Kernel { kernel: String, reason: String },
    /// A program's node could not be rebuilt.
    #[error("node {node} of program `{program}` cannot be built: {reason}")]
    Node { program: String, node: u32, reason: Box<DeviceError> },
    /// There is no CUDA device, or no driver that can use it.
    #[error("there is no CUDA device to use: {reason}")]
    NoCuda { reason: String },
    /// The operating system or driver refused an operation.
    #[error("{operation} failed with {name} ({code}): {description}")]
    Driver { operation: String, code: i64, name: String, description: String },
    /// The device's pages and rows cannot be copied from outside its programs.
    #[error("the device cannot copy pages out; serve without a prefix cache in memory or on disk")]
    NoCopier,
    /// The execution thread ended; nothing more can run.
    #[error("the execution thread has ended")]
    Stopped,
}

/// What an executor's staging ring takes.
fn staging_bytes(contract: &BoundContract) -> usize {
    let all: u64 =
        contract.buffers.iter().filter(|buffer| buffer.source.is_uploaded()).map(|b| b.bytes).sum();
    usize::try_from((all * STAGED_STEPS).max(STAGING_BYTES_MIN)).unwrap_or(usize::MAX)
}

/// An error of the standard library, with what was asked of it.
fn io_error(operation: &str, error: &std::io::Error) -> DeviceError {
    DeviceError::Driver {
        operation: operation.to_owned(),
        code: i64::from(error.raw_os_error().unwrap_or(0)),
        name: format!("{:?}", error.kind()),
        description: error.to_string(),
    }
}
