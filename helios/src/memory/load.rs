//! Loading: take an open core, check that this machine can run it, put it in place, size it, and back its rows and pages.
//!
//! The core says which device it is for; everything behind [`PlacedCore`] is the same for all of them.

use std::sync::Arc;

use super::machine::available_bytes;
use super::sizing::{Budget, MemoryError, MemoryPlan, plan};
use crate::core::contract::{BoundContract, DeviceIdentity};
use crate::core::machine::{CudaDevice, check_cuda, check_processor, other_device};
use crate::core::{Core, CoreError};
use crate::device::cuda::CudaCore;
use crate::device::cuda::context::Context;
use crate::device::host::{HostExecutor, processor};
use crate::device::{Backing, DeviceError, Inspect, Placement};
use crate::ids::Digest;

/// How much memory a core may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryOptions {
    /// All that the core may take, weights included; by default what the device has available, less headroom.
    pub limit_bytes: Option<u64>,
}

/// A core in place, ready to execute.
pub struct LoadedCore {
    pub contract: Arc<BoundContract>,
    pub executor: Box<dyn Inspect>,
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
    /// The device refused memory, code or a thread.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Loads a core for serving, and tells `done` after each step.
///
/// A host core's weights are mapped, so the time does not grow with them; a CUDA core's are copied to the device.
pub fn load(
    core: Core,
    options: &MemoryOptions,
    done: &mut dyn FnMut(&'static str),
) -> Result<LoadedCore, LoadError> {
    let placed = PlacedCore::place(core, done)?;
    let memory = placed.plan(options)?;
    let digest = placed.core.file.digest();
    let (core, executor) = placed.back(memory.backing())?;
    done("rows and pages");
    Ok(LoadedCore { contract: core.contract, executor, digest, memory })
}

/// A core in place but for its rows and pages.
pub struct PlacedCore {
    pub core: Core,
    device: Device,
}

enum Device {
    /// Maps everything at once, when rows and pages are known: mapping takes no memory and no time.
    Host,
    Cuda {
        placed: Box<CudaCore>,
        is_integrated: bool,
    },
}

impl PlacedCore {
    /// Checks that this machine can run `core`, and puts it in place on its device.
    pub fn place(core: Core, done: &mut dyn FnMut(&'static str)) -> Result<Self, LoadError> {
        let identity = &core.contract.identity.device;
        let device = match identity {
            DeviceIdentity::Host { .. } => {
                check_processor(identity, std::env::consts::ARCH, &processor::features()?)?;
                Device::Host
            }
            DeviceIdentity::Cuda { .. } => {
                let context = Context::open().map_err(|error| match error {
                    DeviceError::NoCuda { reason } => other_device(identity, reason).into(),
                    other => LoadError::from(other),
                })?;
                let properties = context.properties();
                check_cuda(
                    identity,
                    CudaDevice {
                        compute_major: properties.compute_major,
                        compute_minor: properties.compute_minor,
                        multiprocessors: properties.multiprocessors,
                    },
                )?;
                let is_integrated = properties.is_integrated;
                // Asked before anything is copied, so that a core that cannot fit is refused by its size.
                let (free_bytes, _) = context.memory()?;
                plan(&core.contract, cuda_budget(free_bytes, 0, is_integrated)?, Placement::Device)?;
                done("device");
                let placed = Box::new(CudaCore::place(&context, &core, done)?);
                Device::Cuda { placed, is_integrated }
            }
        };
        Ok(Self { core, device })
    }

    /// Decides the number of rows and pages by what is available now.
    pub fn plan(&self, options: &MemoryOptions) -> Result<MemoryPlan, LoadError> {
        let (available, placement) = match &self.device {
            Device::Host => {
                let available_bytes = available_bytes().map_err(MemoryError::from)?;
                (Budget::Machine { available_bytes }, Placement::Process)
            }
            Device::Cuda { placed, is_integrated } => {
                let (free_bytes, taken_bytes) = placed.memory()?;
                let placement = if *is_integrated { Placement::Unified } else { Placement::Device };
                (cuda_budget(free_bytes, taken_bytes, *is_integrated)?, placement)
            }
        };
        let budget = match options.limit_bytes {
            Some(bytes) => available.limited_to(bytes),
            None => available,
        };
        Ok(plan(&self.core.contract, budget, placement)?)
    }

    /// Backs rows and pages.
    pub fn back(self, backing: Backing) -> Result<(Core, Box<dyn Inspect>), LoadError> {
        let executor: Box<dyn Inspect> = match self.device {
            Device::Host => Box::new(HostExecutor::new(&self.core, backing)?),
            Device::Cuda { placed, .. } => Box::new(placed.back(&self.core, backing)?),
        };
        Ok((self.core, executor))
    }
}

/// What a core may take of a device that has `free_bytes` left beside `taken_bytes` that the core takes already.
///
/// Where the device shares the machine's memory, what it calls free leaves out what the file cache would give up, and the
/// machine's own account is the budget of both.
fn cuda_budget(free_bytes: u64, taken_bytes: u64, is_integrated: bool) -> Result<Budget, MemoryError> {
    if is_integrated {
        return Ok(Budget::Machine { available_bytes: available_bytes()? + taken_bytes });
    }
    Ok(Budget::Device { available_bytes: free_bytes + taken_bytes })
}
