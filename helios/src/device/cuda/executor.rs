//! The CUDA executor: programs of one core on one stream, and what is copied before and after them.
//!
//! Uploads are copied into a pinned ring and from there by the stream, so they are ordered with the launches. A short upload of
//! what the device holds already is left out: between two launches each copy costs microseconds, whatever its length.
//! Each launch records an event from a fixed pool; a fence is passed when its event is. Reads go over a stream of their own,
//! so that they do not wait for launches that come later. After construction nothing here allocates.
#![expect(unsafe_code, reason = "copies and launches use device memory, which Rust cannot see")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bounce::Bounce;
use super::copier::{CudaCopier, Strided};
use super::held::Held;
use super::in_flight::{InFlight, Mark};
use super::memory::Memory;
use super::module::Kernels;
use super::program::CudaProgram;
use super::stream::{Event, Pinned, Stream};
use super::timeline::Timeline;
use crate::core::contract::StateLayout;
use crate::device::part::{Begun, Part};
use crate::device::{
    Backing, BufferId, COMMANDS_MAX, Copier, DeviceError, Executor, Fence, Inspect, Placement, ProgramId,
};

/// Longer than a decode step takes. Until then a waiting thread polls without a pause, since waking it would take longer
/// than the gap between two steps may be; from then on it sleeps between two looks.
const SPIN: Duration = Duration::from_millis(2);
const POLL: Duration = Duration::from_micros(50);

/// Runs one core's programs on the device. Dropping it waits for what was submitted.
///
/// Fields are dropped in their order: graphs before the kernels that they launch, and these before the memory.
pub struct CudaExecutor {
    stream: Stream,
    programs: Vec<CudaProgram>,
    begun: Begun,
    _kernels: Kernels,
    staging: Pinned,
    in_flight: InFlight,
    held: Held,
    events: Vec<Event>,
    timeline: Option<Timeline>,
    bounce: Bounce,
    memory: Arc<Memory>,
    state: StateLayout,
    backing: Backing,
}

/// What an executor is made of.
pub(super) struct Parts {
    pub stream: Stream,
    pub programs: Vec<CudaProgram>,
    pub kernels: Kernels,
    pub memory: Memory,
    pub staging_bytes: usize,
    pub held: Held,
    pub state: StateLayout,
    pub backing: Backing,
}

impl CudaExecutor {
    /// Takes over what was put in place. Everything that later steps need is made here.
    pub(super) fn new(parts: Parts) -> Result<Self, DeviceError> {
        let Parts { stream, programs, kernels, memory, staging_bytes, held, state, backing } = parts;
        let context = &memory.context;
        let events = (0..COMMANDS_MAX).map(|_| Event::new(context)).collect::<Result<_, _>>()?;
        Ok(Self {
            staging: Pinned::new(context, staging_bytes)?,
            in_flight: InFlight::new(COMMANDS_MAX, staging_bytes as u64),
            held,
            events,
            timeline: Timeline::new(context)?,
            bounce: Bounce::new(context)?,
            stream,
            programs,
            begun: Begun::default(),
            _kernels: kernels,
            memory: Arc::new(memory),
            state,
            backing,
        })
    }

    /// Makes room for a submission that stages `bytes`, and says where.
    fn room(&mut self, bytes: usize) -> Result<usize, DeviceError> {
        if !self.in_flight.has_room() {
            self.look()?;
        }
        if self.in_flight.has_room() {
            if let Some(start) = self.in_flight.stage(bytes as u64) {
                return Ok(start as usize);
            }
            self.look()?;
            if let Some(start) = self.in_flight.stage(bytes as u64) {
                return Ok(start as usize);
            }
        }
        // Uploads without a launch behind them would otherwise never be seen complete.
        self.mark_all()?;
        Err(DeviceError::Busy { in_flight_max: COMMANDS_MAX })
    }

    /// Takes note of every mark that is passed by now.
    fn look(&mut self) -> Result<(), DeviceError> {
        while let Some(mark) = self.in_flight.oldest()
            && self.events[mark.event].is_complete()?
        {
            self.pass(mark)?;
        }
        Ok(())
    }

    fn pass(&mut self, mark: Mark) -> Result<(), DeviceError> {
        self.in_flight.pass(mark);
        if let Some(timeline) = &mut self.timeline {
            let (in_flight, programs) = (&self.in_flight, &self.programs);
            timeline.log(|number| in_flight.is_complete(number), |id| &programs[id.0 as usize].name)?;
        }
        Ok(())
    }

    /// Sets a mark behind everything submitted.
    fn mark_all(&mut self) -> Result<(), DeviceError> {
        if self.in_flight.has_unmarked() {
            let event = self.in_flight.mark();
            self.events[event].record(&self.stream)?;
        }
        Ok(())
    }

    /// Whether submission `number` is complete.
    fn passed(&mut self, number: u64) -> Result<bool, DeviceError> {
        if self.in_flight.is_complete(number) {
            return Ok(true);
        }
        let Some(mark) = self.in_flight.mark_behind(number) else { return Ok(false) };
        let is_complete = self.events[mark.event].is_complete()?;
        if is_complete {
            self.pass(mark)?;
        }
        Ok(is_complete)
    }

    /// Submits a part of a program, if the program has it.
    fn submit(&mut self, program: ProgramId, part: Part) -> Result<Option<u64>, DeviceError> {
        self.memory.context.bind()?;
        self.room(0)?;
        let Some(graph) = self.programs[program.0 as usize].graph(part) else { return Ok(None) };
        if let Some(timeline) = &mut self.timeline {
            timeline.begin(&self.stream)?;
        }
        // SAFETY: the core's regions are backed for as long as `self.memory` is here, and programs run one at a time.
        unsafe { graph.launch(&self.stream) }?;
        let number = self.in_flight.submit();
        if let Some(timeline) = &mut self.timeline {
            timeline.end(&self.stream, program, part, number)?;
        }
        Ok(Some(number))
    }

    #[expect(clippy::disallowed_methods, reason = "a wait is bounded by the clock")]
    fn wait_for(&mut self, number: u64, timeout: Duration) -> Result<(), DeviceError> {
        self.memory.context.bind()?;
        let begun = Instant::now();
        while !self.passed(number)? {
            let waited = begun.elapsed();
            if waited >= timeout {
                let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                return Err(DeviceError::Timeout { timeout_ms });
            }
            if waited < SPIN {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(POLL);
            }
        }
        Ok(())
    }
}

impl Executor for CudaExecutor {
    fn upload(&mut self, buffer: BufferId, offset_bytes: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let destination = self.memory.locate_in_buffer(buffer, offset_bytes, bytes.len())?;
        if bytes.is_empty() || self.held.is(buffer, offset_bytes, bytes) {
            return Ok(());
        }
        self.memory.context.bind()?;
        let start = self.room(bytes.len())?;
        let staged = &mut self.staging[start..start + bytes.len()];
        staged.copy_from_slice(bytes);
        // SAFETY: the ring gives these bytes to nobody else until a mark behind this copy is passed, and the stream runs the
        // programs that use the destination before or after it.
        unsafe { self.stream.upload(destination, staged) }?;
        self.in_flight.submit();
        self.held.becomes(buffer, offset_bytes, bytes);
        Ok(())
    }

    fn launch(&mut self, program: ProgramId) -> Result<Fence, DeviceError> {
        let number = self.submit(program, self.begun.left(program))?;
        self.begun.end();
        self.mark_all()?;
        Ok(Fence(number.expect("every program is whole, and one that was begun has a rest")))
    }

    fn launch_early(&mut self, program: ProgramId) -> Result<bool, DeviceError> {
        let is_begun = self.submit(program, Part::Early)?.is_some();
        if is_begun {
            self.begun.begin(program);
        }
        Ok(is_begun)
    }

    fn is_complete(&mut self, fence: Fence) -> Result<bool, DeviceError> {
        self.memory.context.bind()?;
        self.passed(fence.0)
    }

    fn wait(&mut self, fence: Fence, timeout: Duration) -> Result<(), DeviceError> {
        self.wait_for(fence.0, timeout)
    }

    fn read(&mut self, buffer: BufferId, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let source = self.memory.locate_in_buffer(buffer, offset_bytes, into.len())?;
        self.memory.context.bind()?;
        self.bounce.read(source, into)
    }

    fn copier(&self) -> Result<Box<dyn Copier>, DeviceError> {
        self.memory.context.bind()?;
        let strided = |region: u32, stride_bytes, count| Strided {
            address: self.memory.ranges[region as usize].address(),
            stride_bytes,
            count,
        };
        let (state, backing) = (&self.state, self.backing);
        let pages = strided(state.pages_region, state.page_stride_bytes, backing.pages);
        let rows = strided(state.rows_region, state.row_stride_bytes, backing.rows);
        let is_integrated = self.memory.context.properties().is_integrated;
        let placement = if is_integrated { Placement::Unified } else { Placement::Device };
        Ok(Box::new(CudaCopier::new(Arc::clone(&self.memory), pages, rows, placement)?))
    }
}

impl Inspect for CudaExecutor {
    fn drain(&mut self, timeout: Duration) -> Result<(), DeviceError> {
        self.memory.context.bind()?;
        self.mark_all()?;
        self.wait_for(self.in_flight.submitted(), timeout)
    }

    fn read_region(
        &mut self,
        region: usize,
        offset_bytes: u64,
        into: &mut [u8],
        timeout: Duration,
    ) -> Result<(), DeviceError> {
        self.drain(timeout)?;
        let source = self.memory.ranges[region].locate(offset_bytes, into.len() as u64)?;
        self.bounce.read(source, into)
    }

    fn write_region(
        &mut self,
        region: usize,
        offset_bytes: u64,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<(), DeviceError> {
        self.drain(timeout)?;
        let destination = self.memory.locate_writable(region, offset_bytes, bytes.len())?;
        self.held.forget();
        self.bounce.write(destination, bytes)
    }
}

impl Drop for CudaExecutor {
    fn drop(&mut self) {
        let waited = self.memory.context.bind().and_then(|()| self.stream.synchronize());
        if let Err(error) = waited {
            tracing::error!(%error, "the device did not finish its work");
        }
    }
}
