//! Loading: open a core, check that this machine can run it, size it, and put it in place.

use std::path::Path;

use super::machine::available_bytes;
use super::sizing::{Budget, MemoryError, MemoryPlan, plan};
use crate::core::contract::{BoundContract, FrontendAssets};
use crate::core::machine::check_processor;
use crate::core::{Core, CoreError};
use crate::device::DeviceError;
use crate::device::host::{HostExecutor, processor};
use crate::ids::Digest;

/// How much memory a core may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryOptions {
    /// All that the core may take, weights included; by default what the machine has available, less headroom.
    pub limit_bytes: Option<u64>,
}

/// A core in place, ready to execute.
pub struct LoadedCore {
    pub contract: BoundContract,
    pub assets: FrontendAssets,
    pub executor: HostExecutor,
    /// Names everything that the core holds.
    pub digest: Digest,
    /// The rows and pages that are backed, and what the rest takes.
    pub memory: MemoryPlan,
}

/// Why a core could not be loaded. Everything that was mapped for it is unmapped again.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The core is not valid, or not for this machine.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// The core does not fit.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The machine refused memory, code or a thread.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Loads the core in `folder` for serving.
///
/// Reads the header, the contract, the modules and the frontend, and maps the rest: the time does not grow with the weights.
pub fn load(folder: &Path, options: &MemoryOptions) -> Result<LoadedCore, LoadError> {
    let core = open_for_this_machine(folder)?;
    let budget = match options.limit_bytes {
        Some(bytes) => Budget::Limit { bytes },
        None => Budget::Machine { available_bytes: available_bytes().map_err(MemoryError::from)? },
    };
    let memory = plan(&core.contract, budget)?;
    let executor = HostExecutor::new(&core, memory.backing())?;
    let digest = core.file.digest();
    Ok(LoadedCore { contract: core.contract, assets: core.assets, executor, digest, memory })
}

/// Opens the core in `folder` and checks that this machine's processor can run it.
pub fn open_for_this_machine(folder: &Path) -> Result<Core, LoadError> {
    let core = Core::open(folder)?;
    check_processor(&core.contract.identity.device, std::env::consts::ARCH, &processor::features()?)?;
    Ok(core)
}
