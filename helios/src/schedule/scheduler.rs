//! The scheduler's state, the events that change it, and its invariants.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::cache::{IntegrityError, PagePool, SlotPool};
use crate::ids::{Epoch, RequestId, SlotId, StepId, TokenId};

use super::chunks::ChunkPlan;
use super::completion::CompletionError;
use super::event::{Ending, Event, Output, Rejection};
use super::geometry::{Geometry, GeometryError, SchedulerLimits};
use super::pages::reservation_pages;
use super::queue::WaitingQueue;
use super::sequence::{Running, Sequence};
use super::step::Step;

/// Admits requests, plans steps and follows their completions.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) geometry: Geometry,
    pub(super) limits: SchedulerLimits,
    pub(super) chunks: ChunkPlan,
    pub(super) waiting: WaitingQueue,
    /// By slot.
    pub(super) running: Vec<Option<Running>>,
    pub(super) pages: PagePool,
    pub(super) slots: SlotPool,
    /// Oldest first.
    pub(super) in_flight: VecDeque<Step>,
    /// Completed steps, whose buffers the next ones use.
    pub(super) spare_steps: Vec<Step>,
    pub(super) last_step: StepId,
    pub(super) last_epoch: Epoch,
    arrivals: u64,
    /// Whether the next step may be a prefill chunk although requests can decode.
    pub(super) is_prefill_due: bool,
    /// Decoders in order of arrival, as the last growth saw them; kept so that planning does not allocate.
    pub(super) order: Vec<SlotId>,
    pub(super) outputs: Vec<Output>,
    /// Set by a shutdown: when what still runs is ended.
    pub(super) deadline: Option<Duration>,
    pub(super) preemptions: u64,
    pub(super) prefilled_tokens: u64,
}

/// Gauges and counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerStats {
    pub running: u32,
    pub waiting: u32,
    pub slots_free: u32,
    pub slots: u32,
    pub pages_free: u32,
    pub pages: u32,
    pub preemptions: u64,
    /// Tokens that prefill chunks have computed.
    pub prefilled_tokens: u64,
}

impl Scheduler {
    /// # Errors
    /// A geometry that lacks capacities, or whose decode programs cannot hold every slot.
    pub fn new(geometry: Geometry, limits: SchedulerLimits) -> Result<Self, GeometryError> {
        geometry.validate()?;
        let slots = geometry.slots as usize;
        Ok(Self {
            chunks: ChunkPlan::new(&geometry),
            waiting: WaitingQueue::default(),
            running: (0..slots).map(|_| None).collect(),
            pages: PagePool::new(geometry.pages),
            slots: SlotPool::new(geometry.slots),
            in_flight: VecDeque::with_capacity(geometry.frames as usize),
            spare_steps: Vec::with_capacity(geometry.frames as usize),
            last_step: StepId(0),
            last_epoch: Epoch(0),
            arrivals: 0,
            is_prefill_due: true,
            order: Vec::with_capacity(slots),
            outputs: Vec::new(),
            deadline: None,
            preemptions: 0,
            prefilled_tokens: 0,
            geometry,
            limits,
        })
    }

    /// Takes note of what happened at `now`, a time since any fixed origin.
    ///
    /// # Errors
    /// A completion that does not match its step; nothing has changed then, and the device can no longer be trusted.
    pub fn handle(&mut self, event: Event<'_>, now: Duration) -> Result<(), CompletionError> {
        match event {
            Event::Submit { request, prompt, output_tokens_max } => {
                self.submit(request, prompt, output_tokens_max);
            }
            Event::Cancel { request } => self.cancel(request),
            Event::Completed { records } => return self.complete(records),
            Event::Shutdown { drain } => {
                self.deadline = Some(now.saturating_add(drain));
                while let Some(sequence) = self.waiting.remove_first(|sequence| !sequence.is_announced) {
                    self.reject(sequence.request, Rejection::ShuttingDown);
                }
            }
        }
        Ok(())
    }

    /// Takes what requests are to be told, in order.
    pub fn drain_outputs(&mut self) -> std::vec::Drain<'_, Output> {
        self.outputs.drain(..)
    }

    /// The step whose completion comes next.
    pub fn oldest_in_flight(&self) -> Option<&Step> {
        self.in_flight.front()
    }

    /// Whether no request waits or runs and nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.iter().all(Option::is_none) && self.in_flight.is_empty()
    }

    pub fn stats(&self) -> SchedulerStats {
        SchedulerStats {
            running: self.running.iter().flatten().count() as u32,
            waiting: self.waiting.len() as u32,
            slots_free: self.slots.available(),
            slots: self.slots.total(),
            pages_free: self.pages.available(),
            pages: self.pages.total(),
            preemptions: self.preemptions,
            prefilled_tokens: self.prefilled_tokens,
        }
    }

    fn submit(&mut self, request: RequestId, prompt: Arc<[TokenId]>, output_tokens_max: u32) {
        let sequence = match self.accept(request, prompt, output_tokens_max) {
            Ok(sequence) => sequence,
            Err(rejection) => return self.reject(request, rejection),
        };
        self.waiting.insert(sequence);
    }

    fn accept(
        &mut self,
        request: RequestId,
        prompt: Arc<[TokenId]>,
        output_tokens_max: u32,
    ) -> Result<Sequence, Rejection> {
        if self.deadline.is_some() {
            return Err(Rejection::ShuttingDown);
        }
        let waiting = self.waiting.sequences().filter(|sequence| !sequence.is_announced).count() as u32;
        if waiting >= self.limits.waiting_max {
            return Err(Rejection::QueueFull { waiting });
        }
        if prompt.is_empty() || output_tokens_max == 0 {
            return Err(Rejection::Empty);
        }
        let context_tokens_max = self.geometry.context_tokens_max;
        let prompt_tokens = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
        if prompt_tokens >= context_tokens_max {
            return Err(Rejection::PromptTooLong { prompt_tokens, context_tokens_max });
        }
        self.arrivals += 1;
        let sequence = Sequence {
            request,
            arrival: self.arrivals,
            prompt,
            generated: Vec::new(),
            output_tokens_max: output_tokens_max.min(context_tokens_max - prompt_tokens),
            is_announced: false,
        };
        let pages = reservation_pages(&self.geometry, &sequence);
        if pages > self.geometry.pages {
            return Err(Rejection::PoolTooSmall { pages, pages_max: self.geometry.pages });
        }
        Ok(sequence)
    }

    fn reject(&mut self, request: RequestId, rejection: Rejection) {
        self.end_output(request, Ending::Rejected(rejection));
    }

    fn cancel(&mut self, request: RequestId) {
        if self.waiting.remove(request).is_some() {
            self.end_output(request, Ending::Cancelled);
            return;
        }
        let mut running = self.running.iter().flatten();
        if let Some(slot) = running.find(|one| one.sequence.request == request).map(|one| one.slot) {
            self.end(slot, Ending::Cancelled);
        }
    }

    /// Ends a running request. Its slot and pages are reusable once all steps submitted so far are complete.
    pub(super) fn end(&mut self, slot: SlotId, ending: Ending) {
        let sequence = self.retire(slot);
        self.end_output(sequence.request, ending);
    }

    /// Ends every request, running and waiting.
    pub(super) fn end_all(&mut self, ending: Ending) {
        for slot in (0..self.geometry.slots).map(SlotId) {
            if self.running[slot.0 as usize].is_some() {
                self.end(slot, ending);
            }
        }
        while let Some(sequence) = self.waiting.remove_first(|_| true) {
            self.end_output(sequence.request, ending);
        }
    }

    fn end_output(&mut self, request: RequestId, ending: Ending) {
        self.outputs.push(Output::Ended { request, ending });
    }

    /// Checks every invariant; for tests and simulations, after every step.
    pub fn check_integrity(&self) -> Result<(), IntegrityError> {
        let running = || self.running.iter().flatten();
        let owned_pages =
            running().flat_map(|one| one.pages.iter().map(|&page| (one.sequence.request, page)));
        self.pages.check_integrity(&owned_pages.collect::<Vec<_>>())?;
        let owned_slots = running().map(|one| (one.sequence.request, one.slot));
        self.slots.check_integrity(&owned_slots.collect::<Vec<_>>())?;
        self.waiting.check_integrity()?;

        let mut requests: Vec<_> =
            running().map(|one| &one.sequence).chain(self.waiting.sequences()).collect();
        requests.sort_unstable_by_key(|sequence| sequence.request);
        if let Some(pair) = requests.windows(2).find(|pair| pair[0].request == pair[1].request) {
            return Err(IntegrityError(format!("request {} is there twice", pair[0].request)));
        }
        for (slot, one) in (0..).map(SlotId).zip(&self.running) {
            if let Some(one) = one {
                self.check_running(slot, one)?;
            }
        }
        let first = self.last_step.0 + 1 - self.in_flight.len() as u64;
        let are_consecutive = (first..).zip(&self.in_flight).all(|(id, step)| step.id == StepId(id));
        if !are_consecutive || self.in_flight.len() > self.steps_in_flight_max() {
            return Err(IntegrityError("the steps in flight are not the last ones".into()));
        }
        Ok(())
    }

    fn check_running(&self, slot: SlotId, one: &Running) -> Result<(), IntegrityError> {
        let request = one.sequence.request;
        let sampled_in_flight = self
            .in_flight
            .iter()
            .flat_map(|step| &step.lanes)
            .filter(|lane| lane.epoch == one.epoch && lane.samples)
            .count() as u32;
        let table_pages = self.geometry.pages_for(self.geometry.context_tokens_max);
        let generated_before = one.prefill_tokens as usize - one.sequence.prompt.len();
        let delivered = one.sequence.generated.len() - generated_before;
        let problem = if one.slot != slot || one.epoch > self.last_epoch {
            "is in a wrong slot or epoch"
        } else if self.geometry.pages_for(one.consumed) > one.pages.len() as u32 {
            "consumes tokens that it has no page for"
        } else if one.pages.len() as u32 > table_pages || one.mapped_pages > one.pages.len() {
            "has more pages than its table"
        } else if one.generated() > one.output_limit {
            "generates more than its limit"
        } else if one.generated() != delivered as u32 + sampled_in_flight {
            "has lost a token"
        } else {
            return Ok(());
        };
        Err(IntegrityError(format!("request {request} {problem}: {one:?}")))
    }

    pub(super) fn steps_in_flight_max(&self) -> usize {
        self.limits.steps_in_flight_max.min(self.geometry.frames) as usize
    }
}
