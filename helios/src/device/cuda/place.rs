//! Putting a core in place: regions, storage, modules and graphs first; rows and pages with what memory is left then.

use std::sync::Arc;

use super::context::Context;
use super::executor::{CudaExecutor, Parts};
use super::held::Held;
use super::memory::Memory;
use super::module::Kernels;
use super::program::CudaProgram;
use super::storage::{Transfer, upload};
use super::stream::Stream;
use crate::core::Core;
use crate::core::contract::RegionBacking;
use crate::device::{Backing, DeviceError, staging_bytes};

/// A core that is in place but for its rows and pages. Its graphs may be launched once these are backed.
pub struct CudaCore {
    parts: Parts,
}

impl CudaCore {
    /// Puts `core` on the device and tells `done` after each step. The core must be for this device.
    pub fn place(
        context: &Arc<Context>,
        core: &Core,
        done: &mut dyn FnMut(&'static str),
    ) -> Result<Self, DeviceError> {
        context.bind()?;
        let contract = &core.contract;
        let memory = Memory::reserve(context, contract)?;
        done("map");
        let transfers = contract.regions.iter().zip(&memory.ranges);
        let transfers = transfers.filter(|(region, _)| region.backing == RegionBacking::Storage);
        let transfers: Vec<Transfer> = transfers
            .map(|(region, range)| {
                let extent =
                    core.file.storage(&region.name).expect("a bound region's storage is in the file");
                let (offset_bytes, bytes) = (extent.offset_bytes, extent.bytes);
                Transfer { offset_bytes, bytes, destination: range.address() }
            })
            .collect();
        upload(context, core.file.file(), &transfers)?;
        done("upload");
        let kernels = Kernels::load(context, contract, &core.images)?;
        done("modules");
        let stream = Stream::new(context)?;
        let programs = CudaProgram::build_all(context, contract, &kernels, &stream)?;
        stream.synchronize()?;
        done("graphs");
        let parts = Parts {
            stream,
            programs,
            kernels,
            memory,
            staging_bytes: staging_bytes(contract),
            held: Held::new(&contract.buffers),
            state: contract.state.clone(),
            backing: Backing { rows: 0, pages: 0 },
        };
        Ok(Self { parts })
    }

    /// Bytes of the device that are free now, and bytes that the core takes already.
    pub fn memory(&self) -> Result<(u64, u64), DeviceError> {
        let context = &self.parts.memory.context;
        context.bind()?;
        let (free_bytes, _) = context.memory()?;
        let taken_bytes = self.parts.memory.ranges.iter().map(|range| range.backed_bytes()).sum();
        Ok((free_bytes, taken_bytes))
    }

    /// Backs rows and pages.
    pub fn back(mut self, core: &Core, backing: Backing) -> Result<CudaExecutor, DeviceError> {
        self.parts.memory.context.bind()?;
        self.parts.memory.back(&core.contract, backing)?;
        self.parts.backing = backing;
        CudaExecutor::new(self.parts)
    }
}
