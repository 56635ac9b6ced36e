//! The model thread.
//!
//! One pass: take commands, cancel what nobody listens to, submit steps until the device or the scheduler has enough, and
//! wait for the oldest. Without requests it blocks on the command queue and uses no CPU. A failure of the device, of a
//! record, or of this code ends the thread: the first failure is kept, every request is told of it, and later submissions are
//! refused with it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TryRecvError;

use sha2::{Digest as _, Sha256};

use crate::core::contract::{BoundContract, Limits};
use crate::device::{DeviceError, Executor};
use crate::grammar::MaskState;
use crate::ids::{Digest, RequestId, RowId};
use crate::schedule::{Event, GeometryError, Output, Prompt, Scheduler, SchedulerLimits};
use crate::tiers::TierOptions;

use super::clock::now;
use super::completion::CompletionReader;
use super::engine::{EngineCommand, EngineError, EngineReceiver, SampledToken, Submission};
use super::masks::{Made, Maker, MaskMaker};
use super::pack::{BindError, Packer, geometry};
use super::queue::DeviceQueue;
use super::requests::{Requests, check};
use super::tiers::TierLink;

/// How often answers are looked for while every request waits for one.
const ANSWER_POLL: Duration = Duration::from_millis(1);

/// Why the model thread cannot start on a core.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("a thread of the engine could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// What the model thread may use.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// KV pages that are backed.
    pub pages: u32,
    /// Snapshot rows that are backed. Without any, nothing is cached.
    pub snapshots: u32,
    /// Where checkpoints are copied to, beside the device.
    pub tiers: TierOptions,
    /// Names the core, so that nothing is taken for its state that another one stored.
    pub core: Digest,
}

/// The model thread; it ends after [`super::engine::Engine::shutdown`], after a failure, or when every handle is gone and
/// no request is left.
#[derive(Debug)]
pub struct Worker {
    thread: JoinHandle<()>,
}

impl Worker {
    /// Starts the thread on a loaded device.
    ///
    /// # Errors
    /// A core that lacks a buffer, a program or a usable capacity, a device that tiers cannot copy from, or a thread that
    /// cannot be made.
    pub fn start(
        contract: &BoundContract,
        options: WorkerOptions,
        executor: Box<dyn Executor>,
        receiver: EngineReceiver,
    ) -> Result<Self, WorkerError> {
        let geometry = geometry(contract, options.pages, options.snapshots);
        let limits =
            SchedulerLimits { waiting_max: receiver.limits.waiting_max, ..SchedulerLimits::default() };
        let snapshot_row = RowId(contract.state.base_rows(contract.limits.requests_max));
        let is_listing = options.tiers.disk.is_some();
        let tiers = match options.snapshots {
            0 => None,
            _ => TierLink::start(options.tiers, options.core, snapshot_row, &*executor, receiver.waker())?,
        };
        let requests_max = limits.waiting_max + geometry.slots;
        let mut device = DeviceQueue::new(executor, geometry.frames);
        let mut scheduler = Scheduler::new(geometry, limits)?;
        if let Some(tiers) = &tiers {
            scheduler.use_tiers(is_listing, Duration::ZERO);
            receiver.watch_tiers(tiers.stats());
        }
        let mut model_thread = ModelThread {
            packer: Packer::new(contract)?,
            reader: CompletionReader::new(contract)?,
            scheduler,
            tiers,
            masks: MaskMaker::start(requests_max)?,
            requests: Requests::new(Arc::clone(&receiver.histograms)),
            limits: contract.limits,
            receiver,
            leavers: Vec::new(),
            started: now(),
            is_closing: false,
        };
        // Counters are there before the first request can ask for them.
        model_thread.publish();
        // The device stays outside the unwind boundary: it is dropped, and so drained, after every request was told.
        let body = move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| model_thread.run(&mut device)));
            model_thread.end(outcome.unwrap_or_else(|_| {
                Err(EngineError::Execution("the model thread panicked; its log says where".into()))
            }));
        };
        let thread = std::thread::Builder::new().name("flare-model".into()).spawn(body)?;
        Ok(Self { thread })
    }

    /// Waits until the thread has ended and the device is dropped.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("the device panicked while it was dropped");
        }
    }
}

struct ModelThread {
    scheduler: Scheduler,
    tiers: Option<TierLink>,
    masks: MaskMaker,
    packer: Packer,
    reader: CompletionReader,
    requests: Requests,
    limits: Limits,
    receiver: EngineReceiver,
    leavers: Vec<RequestId>,
    started: Instant,
    /// Whether the thread ends once it is idle.
    is_closing: bool,
}

impl ModelThread {
    fn run(&mut self, device: &mut DeviceQueue) -> Result<(), EngineError> {
        loop {
            self.take_commands()?;
            self.take_answers()?;
            self.cancel_leavers()?;
            self.submit_steps(device)?;
            self.deliver(device)?;
            if !device.is_empty() {
                self.complete_oldest(device)?;
                self.deliver(device)?;
                continue;
            }
            if self.scheduler.awaits_masks() {
                // Every mask is made within its grammar's limits.
                if let Some(made) = self.masks.wait(ANSWER_POLL) {
                    self.take_mask(made)?;
                    self.deliver(device)?;
                }
                continue;
            }
            if self.scheduler.awaits_tiers() {
                // Requests wait for the tiers and nothing else; their deadline bounds this.
                std::thread::sleep(ANSWER_POLL);
                continue;
            }
            assert!(self.scheduler.is_idle(), "a device with nothing to do is given whatever work there is");
            if self.is_closing {
                return Ok(());
            }
        }
    }

    /// Takes what has arrived; blocks for the next command only when there is nothing else to do.
    fn take_commands(&mut self) -> Result<(), EngineError> {
        if self.scheduler.is_idle() && !self.is_closing {
            // What the last request left is stored now, not when the next one comes and needs its room.
            self.carry_out_orders();
            match self.receiver.commands.blocking_recv() {
                Some(command) => self.take(command)?,
                None => self.is_closing = true,
            }
        }
        loop {
            match self.receiver.commands.try_recv() {
                Ok(command) => self.take(command)?,
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => {
                    self.is_closing = true;
                    return Ok(());
                }
            }
        }
    }

    fn take(&mut self, command: EngineCommand) -> Result<(), EngineError> {
        match command {
            EngineCommand::Submit(submission) => self.accept(submission),
            // Awake is all that it has to be.
            EngineCommand::Wake => Ok(()),
            EngineCommand::Shutdown { drain_timeout_ms } => {
                self.is_closing = true;
                self.handle(Event::Shutdown { drain: Duration::from_millis(drain_timeout_ms) })
            }
        }
    }

    fn accept(&mut self, mut submission: Submission) -> Result<(), EngineError> {
        if let Err(error) = check(&submission.request, &self.limits) {
            self.requests.refuse(&submission, error);
            return Ok(());
        }
        let request = submission.id;
        let prompt = prompt_of(&submission);
        // Masks are all that needs it from here on; where they let an end token through, it is not ignored.
        let constraint = submission.request.constraint.take();
        submission.request.ignore_eos &= constraint.is_none();
        let (client, output_tokens_max) = (submission.request.client, submission.request.output_tokens_max);
        if !self.requests.insert(submission) {
            return Ok(());
        }
        if let Some(constraint) = constraint {
            self.masks.add(request, *constraint);
        }
        self.handle(Event::Submit { request, client, prompt, output_tokens_max })
    }

    fn take_answers(&mut self) -> Result<(), EngineError> {
        while let Some(made) = self.masks.made() {
            self.take_mask(made)?;
        }
        while let Some(event) = self.tiers.as_mut().and_then(TierLink::next_event) {
            self.handle(event)?;
        }
        Ok(())
    }

    fn take_mask(&mut self, made: Made) -> Result<(), EngineError> {
        let Made { request, generated, outcome } = made;
        match outcome {
            Err(error) => {
                self.requests.fail(request, EngineError::Constraint(error.to_string()));
                self.handle(Event::Cancel { request })
            }
            // An answer without any token still takes a step, so that it is admitted as every other one is.
            Ok(MaskState::Complete) if generated > 0 => self.handle(Event::Complete { request }),
            Ok(_) => self.handle(Event::MaskReady { request, generated }),
        }
    }

    fn cancel_leavers(&mut self) -> Result<(), EngineError> {
        let mut leavers = std::mem::take(&mut self.leavers);
        self.requests.leavers(&mut leavers);
        for request in leavers.drain(..) {
            self.handle(Event::Cancel { request })?;
        }
        self.leavers = leavers;
        Ok(())
    }

    fn submit_steps(&mut self, device: &mut DeviceQueue) -> Result<(), EngineError> {
        loop {
            let is_planned = self.scheduler.plan(self.started.elapsed()).is_some();
            // What the tiers must stop to touch, the step may write to.
            self.carry_out_orders();
            if !is_planned {
                return Ok(());
            }
            if let Some(made) = self.submit_step(device).map_err(execution)? {
                self.take_mask(made)?;
            }
        }
    }

    /// Submits the step that was planned last, and gives the late mask that it took.
    fn submit_step(&mut self, device: &mut DeviceQueue) -> Result<Option<Made>, DeviceError> {
        let step = self.scheduler.newest_in_flight().expect("a step was planned");
        let program = self.packer.pack(device, step, |id| self.requests.request(id))?;
        let late = step.lanes.iter().find(|lane| lane.is_masked && self.masks.is_late(lane.request));
        let made = match late {
            None => None,
            Some(lane) => {
                device.launch_early(program)?;
                self.masks.make_late(lane.request)
            }
        };
        self.packer.pack_masks(device, step, |id| self.masks.mask(id))?;
        device.launch(program)?;
        Ok(made)
    }

    fn carry_out_orders(&mut self) {
        if let Some(tiers) = &mut self.tiers {
            self.scheduler.drain_orders().for_each(|order| tiers.carry_out(order));
        }
    }

    fn complete_oldest(&mut self, device: &mut DeviceQueue) -> Result<(), EngineError> {
        let duration = device.wait_oldest().map_err(execution)?;
        let step = self.scheduler.oldest_in_flight().expect("a fence belongs to a step in flight");
        self.receiver.histograms.step_completed(step, duration);
        let records = self.reader.read(device, step).map_err(execution)?;
        let now = self.started.elapsed();
        self.scheduler.handle(Event::Completed { records }, now).map_err(execution)
    }

    fn handle(&mut self, event: Event<'_>) -> Result<(), EngineError> {
        self.scheduler.handle(event, self.started.elapsed()).map_err(execution)
    }

    /// Tells requests what has happened. Logprobs are read now, before a later step may write the same frame. Counters are
    /// published on both sides, so that whoever hears of an event finds them no older than it.
    fn deliver(&mut self, device: &mut DeviceQueue) -> Result<(), EngineError> {
        self.publish();
        let now = now();
        let maker = if self.scheduler.has_one_request() { Maker::Caller } else { Maker::Worker };
        for output in self.scheduler.drain_outputs() {
            match output {
                Output::Admitted { request, cached_tokens } => {
                    self.requests.admitted(request, cached_tokens, now);
                }
                Output::Token { request, token, frame, lane } => {
                    let logprobs = self.reader.logprobs(device, frame, lane).map_err(execution)?;
                    self.requests.sampled(request, SampledToken { token, logprobs }, now);
                    self.masks.sampled(request, token, maker);
                }
                Output::Ended { request, ending } => {
                    self.masks.remove(request);
                    self.requests.ended(request, ending, now);
                }
            }
        }
        self.publish();
        Ok(())
    }

    fn publish(&self) {
        let scheduler = self.scheduler.stats();
        self.receiver.stats.send_modify(|stats| {
            stats.requests_running = scheduler.running;
            stats.requests_waiting = scheduler.waiting;
            stats.slots_free = scheduler.slots_free;
            stats.slots_max = scheduler.slots;
            stats.pages_free = scheduler.pages_free;
            stats.pages_cached = scheduler.cache.pages_cached;
            stats.pages_max = scheduler.pages;
            stats.snapshots_free = scheduler.snapshots_free;
            stats.snapshots_cached = scheduler.cache.checkpoints;
            stats.snapshots_max = scheduler.snapshots;
            stats.requests_finished = self.requests.finished;
            stats.requests_cancelled = self.requests.cancelled;
            stats.requests_failed = self.requests.failed;
            stats.preemptions = scheduler.preemptions;
            stats.fetches = scheduler.transfers.fetched;
            stats.fetches_failed = scheduler.transfers.fetches_failed;
            stats.prompt_tokens_computed = scheduler.prefilled_tokens;
            stats.prompt_tokens_cached = scheduler.cached_tokens;
            stats.checkpoints_published = scheduler.cache.published;
            stats.checkpoints_duplicate = scheduler.cache.duplicates;
            stats.checkpoints_skipped = scheduler.captures_skipped;
            stats.checkpoints_thinned = scheduler.cache.thinned;
            stats.evictions_for_pages = scheduler.cache.evicted_for_pages;
            stats.evictions_for_snapshots = scheduler.cache.evicted_for_snapshots;
            stats.tokens_generated = self.requests.tokens;
        });
    }

    /// Leaves no request without an answer: neither those that run after a failure nor those still in the queue.
    fn end(mut self, outcome: Result<(), EngineError>) {
        let refusal = match outcome {
            Ok(()) => EngineError::ShuttingDown,
            Err(failure) => {
                tracing::error!(%failure, "the engine has failed");
                self.receiver.fail(failure.clone());
                failure
            }
        };
        self.requests.fail_all(&refusal, now());
        self.receiver.commands.close();
        while let Ok(command) = self.receiver.commands.try_recv() {
            if let EngineCommand::Submit(submission) = command {
                self.requests.refuse(&submission, refusal.clone());
            }
        }
        self.publish();
        self.receiver.stats.send_modify(|stats| stats.requests_running = 0);
        if let Some(tiers) = self.tiers {
            tiers.close();
        }
    }
}

/// Prompts of one salt, or of none, share what they have in common.
fn prompt_of(submission: &Submission) -> Prompt {
    let request = &submission.request;
    let salt = request.cache_salt.as_deref().unwrap_or_default();
    Prompt {
        tokens: Arc::clone(&request.prompt),
        endpoints: Arc::clone(&request.endpoints),
        root: Digest(Sha256::digest(salt).into()),
        conditions: Arc::default(),
        is_constrained: request.constraint.is_some(),
    }
}

fn execution(error: impl std::error::Error) -> EngineError {
    EngineError::Execution(error.to_string())
}
