//! The host executor: memory, programs and the thread that runs them.
#![expect(unsafe_code, reason = "copying to and from memory that kernels use, and running them")]

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::copier::{HostCopier, Strided};
use super::mapping::{Mapping, PAGE_BYTES};
use super::module::Module;
use super::program::HostProgram;
use super::queue::{Queue, Target};
use super::read_ahead::ReadAhead;
use crate::core::contract::{BoundContract, Region, RegionBacking, StateLayout};
use crate::core::{Core, CoreFile};
use crate::device::part::{Begun, Part};
use crate::device::{
    Backing, BufferId, Copier, DeviceError, Executor, Fence, Inspect, ProgramId, io_error, staging_bytes,
};

/// Inductor's kernels keep tiles on the stack; this is what they had while they were captured.
const STACK_BYTES: usize = 8 << 20;

/// Runs one core's programs on this machine's processors.
///
/// Kernels run on a thread that the executor owns, and on the OpenMP team that belongs to it ([`super::openmp`] says how the
/// team waits). Dropping the executor finishes what was submitted, joins the thread and unmaps the memory.
pub struct HostExecutor {
    memory: Arc<Memory>,
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
    programs: usize,
    begun: Begun,
    state: StateLayout,
    backing: Backing,
    _read_ahead: ReadAhead,
}

impl HostExecutor {
    /// Maps a core's memory, loads its modules and starts its thread. The core must be for this processor.
    pub fn new(core: &Core, backing: Backing) -> Result<Self, DeviceError> {
        let contract = &core.contract;
        let memory = Arc::new(Memory::map(contract, &core.file, backing)?);
        let modules = contract.modules.iter().zip(&core.images);
        let modules: Vec<Module> =
            modules.map(|(module, image)| Module::load(&module.name, image)).collect::<Result<_, _>>()?;
        let programs = HostProgram::build_all(contract, &modules)?;
        let queue = Arc::new(Queue::new(staging_bytes(contract)));
        let read_ahead = ReadAhead::start(storage(contract, &memory))?;
        let count = programs.len();
        let worker = Worker { memory: Arc::clone(&memory), queue: Arc::clone(&queue), programs };
        let thread = std::thread::Builder::new()
            .name("flare-device".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || worker.run())
            .map_err(|error| io_error("starting the execution thread", &error))?;
        Ok(Self {
            memory,
            queue,
            thread: Some(thread),
            programs: count,
            begun: Begun::default(),
            state: contract.state.clone(),
            backing,
            _read_ahead: read_ahead,
        })
    }

    fn submit(&self, program: ProgramId, part: Part) -> Result<u64, DeviceError> {
        assert!((program.0 as usize) < self.programs, "a program of this core");
        self.queue.launch(program, part)
    }
}

impl Executor for HostExecutor {
    fn upload(&mut self, buffer: BufferId, offset_bytes: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.memory.check(buffer, offset_bytes, bytes.len())?;
        self.queue.upload(Target { buffer: buffer.0 as usize, offset_bytes }, bytes)
    }

    fn launch(&mut self, program: ProgramId) -> Result<Fence, DeviceError> {
        let number = self.submit(program, self.begun.left(program))?;
        self.begun.end();
        Ok(Fence(number))
    }

    fn launch_early(&mut self, program: ProgramId) -> Result<bool, DeviceError> {
        self.submit(program, Part::Early)?;
        self.begun.begin(program);
        Ok(true)
    }

    fn is_complete(&mut self, fence: Fence) -> Result<bool, DeviceError> {
        self.queue.is_complete(fence.0)
    }

    fn wait(&mut self, fence: Fence, timeout: Duration) -> Result<(), DeviceError> {
        self.queue.wait(fence.0, timeout)
    }

    fn read(&mut self, buffer: BufferId, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.check(buffer, offset_bytes, into.len())?;
        let view = self.memory.buffers[buffer.0 as usize];
        // SAFETY: the caller has waited for the launch that wrote these bytes and has none in flight that writes them.
        // Kernels are machine code that Rust cannot see into: a caller that breaks this reads a mix of old and new bytes.
        unsafe { self.memory.regions[view.region].read(view.offset_bytes + offset_bytes, into) }
    }

    fn copier(&self) -> Result<Box<dyn Copier>, DeviceError> {
        let strided = |region: u32, stride_bytes, count| {
            let mapping = Arc::clone(&self.memory.regions[region as usize]);
            Strided { mapping, stride_bytes, count }
        };
        let (state, backing) = (&self.state, self.backing);
        let pages = strided(state.pages_region, state.page_stride_bytes, backing.pages);
        let rows = strided(state.rows_region, state.row_stride_bytes, backing.rows);
        Ok(Box::new(HostCopier { pages, rows }))
    }
}

impl Inspect for HostExecutor {
    fn drain(&mut self, timeout: Duration) -> Result<(), DeviceError> {
        self.queue.wait(self.queue.last_submitted(), timeout)
    }

    fn read_region(
        &mut self,
        region: usize,
        offset_bytes: u64,
        into: &mut [u8],
        timeout: Duration,
    ) -> Result<(), DeviceError> {
        self.drain(timeout)?;
        // SAFETY: nothing is in flight, and `&mut self` keeps it so.
        unsafe { self.memory.regions[region].read(offset_bytes, into) }
    }

    fn write_region(
        &mut self,
        region: usize,
        offset_bytes: u64,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<(), DeviceError> {
        self.drain(timeout)?;
        // SAFETY: nothing is in flight, and `&mut self` keeps it so.
        unsafe { self.memory.regions[region].write(offset_bytes, bytes) }
    }
}

impl Drop for HostExecutor {
    fn drop(&mut self) {
        self.queue.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the execution thread had panicked");
        }
    }
}

/// A core's regions, mapped, and where its buffers lie in them.
struct Memory {
    regions: Vec<Arc<Mapping>>,
    buffers: Vec<View>,
}

#[derive(Clone, Copy)]
struct View {
    region: usize,
    offset_bytes: u64,
    bytes: u64,
}

impl Memory {
    fn map(contract: &BoundContract, file: &CoreFile, backing: Backing) -> Result<Self, DeviceError> {
        let state = &contract.state;
        let mut regions = Vec::with_capacity(contract.regions.len());
        for (index, region) in (0u32..).zip(&contract.regions) {
            regions.push(Arc::new(match region.backing {
                RegionBacking::Zeroed => Mapping::zeroed(region.address, region.bytes)?,
                RegionBacking::Storage => {
                    let extent = file.storage(&region.name).expect("a bound region's storage is in the file");
                    Mapping::file(region.address, region.bytes, file.file(), extent.offset_bytes)?
                }
                RegionBacking::Elastic => {
                    let (count, stride_bytes) = if index == state.rows_region {
                        (backing.rows, state.row_stride_bytes)
                    } else {
                        (backing.pages, state.page_stride_bytes)
                    };
                    let bytes = u64::from(count).saturating_mul(stride_bytes);
                    if bytes > region.bytes {
                        return Err(DeviceError::Unmapped { address: region.address, bytes });
                    }
                    Mapping::elastic(region.address, region.bytes, bytes.next_multiple_of(PAGE_BYTES))?
                }
            }));
        }
        let buffers = contract.buffers.iter().map(|buffer| {
            let holds = |region: &Region| {
                region.address <= buffer.address
                    && buffer.address + buffer.bytes <= region.address + region.bytes
            };
            let region = contract.regions.iter().position(holds).expect("a bound buffer lies in a region");
            let offset_bytes = buffer.address - contract.regions[region].address;
            View { region, offset_bytes, bytes: buffer.bytes }
        });
        Ok(Self { buffers: buffers.collect(), regions })
    }

    fn check(&self, buffer: BufferId, offset_bytes: u64, length: usize) -> Result<(), DeviceError> {
        let end_bytes = offset_bytes.saturating_add(length as u64);
        let buffer_bytes = self.buffers[buffer.0 as usize].bytes;
        if end_bytes > buffer_bytes {
            return Err(DeviceError::OutOfBounds { buffer: buffer.0, offset_bytes, end_bytes, buffer_bytes });
        }
        Ok(())
    }
}

fn storage(contract: &BoundContract, memory: &Memory) -> Vec<Arc<Mapping>> {
    let regions = contract.regions.iter().zip(&memory.regions);
    let storage = regions.filter(|(region, _)| region.backing == RegionBacking::Storage);
    storage.map(|(_, mapping)| Arc::clone(mapping)).collect()
}

/// What the execution thread owns.
struct Worker {
    memory: Arc<Memory>,
    queue: Arc<Queue>,
    programs: Vec<HostProgram>,
}

impl Worker {
    fn run(self) {
        let _end = EndOnDrop(&self.queue);
        while let Some((program, part, number)) = self.queue.next(|target, pieces| self.copy(target, pieces))
        {
            // SAFETY: the regions are mapped for as long as `self.memory` is here, and commands run one at a time.
            unsafe { self.programs[program.0 as usize].run(part) };
            self.queue.complete(number);
        }
    }

    fn copy(&self, target: Target, pieces: [&[u8]; 2]) {
        let view = self.memory.buffers[target.buffer];
        let mut offset_bytes = view.offset_bytes + target.offset_bytes;
        for piece in pieces {
            // SAFETY: no program runs while this thread copies.
            let written = unsafe { self.memory.regions[view.region].write(offset_bytes, piece) };
            written.expect("an upload was checked against its buffer, which lies in writable memory");
            offset_bytes += piece.len() as u64;
        }
    }
}

/// Tells waiters that the thread has ended, whatever ended it.
struct EndOnDrop<'a>(&'a Queue);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
