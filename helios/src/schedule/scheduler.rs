//! The scheduler's state and the events that change it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::cache::{CacheStats, PrefixCache, PrefixChain, SlotPool};
use crate::ids::{ClientId, Epoch, RequestId, SlotId, StepId};

use super::chunks::ChunkPlan;
use super::completion::CompletionError;
use super::event::{Ending, Event, Finish, Output, Prompt, Rejection};
use super::geometry::{Geometry, GeometryError, SchedulerLimits};
use super::pages::reservation_pages;
use super::queue::WaitingQueue;
use super::sequence::{Leave, Mask, Running, Sequence, Stage, Tokens};
use super::step::Step;
use super::transfers::{TransferStats, Transfers};

/// Admits requests, plans steps and follows their completions.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) geometry: Geometry,
    pub(super) limits: SchedulerLimits,
    pub(super) chunks: ChunkPlan,
    /// How prompts are cut while others decode: short enough that these are not held up for long.
    pub(super) short_chunks: ChunkPlan,
    pub(super) waiting: WaitingQueue,
    /// By slot.
    pub(super) running: Vec<Option<Running>>,
    pub(super) cache: PrefixCache,
    pub(super) transfers: Transfers,
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
    /// Chunks in a row that were not the oldest prefilling request's.
    pub(super) passes: u32,
    /// Decoders in order of arrival, as the last growth saw them; kept so that planning does not allocate.
    pub(super) order: Vec<SlotId>,
    pub(super) outputs: Vec<Output>,
    /// Set by a shutdown: when what still runs is ended.
    pub(super) deadline: Option<Duration>,
    pub(super) preemptions: u64,
    pub(super) prefilled_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) captures_skipped: u64,
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
    pub snapshots_free: u32,
    pub snapshots: u32,
    pub preemptions: u64,
    /// Tokens that prefill chunks have computed.
    pub prefilled_tokens: u64,
    /// Tokens that admissions have found in the cache.
    pub cached_tokens: u64,
    /// Captures that found every row in use.
    pub captures_skipped: u64,
    pub cache: CacheStats,
    pub transfers: TransferStats,
}

impl Scheduler {
    /// # Errors
    /// A geometry that lacks capacities, or whose decode programs cannot hold every slot.
    pub fn new(geometry: Geometry, limits: SchedulerLimits) -> Result<Self, GeometryError> {
        geometry.validate()?;
        let slots = geometry.slots as usize;
        Ok(Self {
            chunks: ChunkPlan::new(&geometry, &geometry.prefill),
            short_chunks: ChunkPlan::new(&geometry, geometry.short_prefill()),
            waiting: WaitingQueue::default(),
            running: (0..slots).map(|_| None).collect(),
            cache: PrefixCache::new(geometry.page_tokens, geometry.pages, geometry.snapshots),
            transfers: Transfers::default(),
            slots: SlotPool::new(geometry.slots),
            in_flight: VecDeque::with_capacity(geometry.frames as usize),
            spare_steps: Vec::with_capacity(geometry.frames as usize),
            last_step: StepId(0),
            last_epoch: Epoch(0),
            arrivals: 0,
            is_prefill_due: true,
            passes: 0,
            order: Vec::with_capacity(slots),
            outputs: Vec::new(),
            deadline: None,
            preemptions: 0,
            prefilled_tokens: 0,
            cached_tokens: 0,
            captures_skipped: 0,
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
            Event::Submit { request, client, prompt, output_tokens_max } => {
                self.submit(request, client, prompt, output_tokens_max);
            }
            Event::Cancel { request } => self.end(request, Ending::Cancelled),
            Event::Completed { records } => return self.complete(records, now),
            Event::MaskReady { request, generated } => self.mask_ready(request, generated),
            Event::Complete { request } => self.end(request, Ending::Finished(Finish::EndToken)),
            Event::TierHolds { name } => self.tier_holds(name),
            Event::TiersListed => self.tiers_listed(),
            Event::TierDropped { digest } => self.tier_dropped(digest),
            Event::Transferred { transfer, is_done } => self.transferred(transfer, is_done),
            Event::TiersStopped => self.tiers_stopped(),
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

    /// The step that was planned last, if it is not complete.
    pub fn newest_in_flight(&self) -> Option<&Step> {
        self.in_flight.back()
    }

    /// Whether no request waits or runs and nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.iter().all(Option::is_none) && self.in_flight.is_empty()
    }

    /// Whether a single request is all that there is.
    pub fn has_one_request(&self) -> bool {
        self.waiting.is_empty() && self.running.iter().flatten().count() == 1
    }

    pub fn stats(&self) -> SchedulerStats {
        SchedulerStats {
            running: self.running.iter().flatten().count() as u32,
            waiting: self.waiting.len() as u32,
            slots_free: self.slots.available(),
            slots: self.slots.total(),
            pages_free: self.cache.pages().available(),
            pages: self.cache.pages().total(),
            snapshots_free: self.cache.snapshots().available(),
            snapshots: self.cache.snapshots().total(),
            preemptions: self.preemptions,
            prefilled_tokens: self.prefilled_tokens,
            cached_tokens: self.cached_tokens,
            captures_skipped: self.captures_skipped,
            cache: self.cache.stats(),
            transfers: self.transfers.stats,
        }
    }

    fn submit(&mut self, request: RequestId, client: ClientId, prompt: Prompt, output_tokens_max: u32) {
        let sequence = match self.accept(request, client, prompt, output_tokens_max) {
            Ok(sequence) => sequence,
            Err(rejection) => return self.reject(request, rejection),
        };
        self.waiting.push(sequence);
    }

    fn accept(
        &mut self,
        request: RequestId,
        client: ClientId,
        prompt: Prompt,
        output_tokens_max: u32,
    ) -> Result<Sequence, Rejection> {
        if self.deadline.is_some() {
            return Err(Rejection::ShuttingDown);
        }
        let waiting = self.waiting.sequences().filter(|sequence| !sequence.is_announced).count() as u32;
        if waiting >= self.limits.waiting_max {
            return Err(Rejection::QueueFull { waiting });
        }
        if prompt.tokens.is_empty() || output_tokens_max == 0 {
            return Err(Rejection::Empty);
        }
        let context_tokens_max = self.geometry.context_tokens_max;
        let prompt_tokens = u32::try_from(prompt.tokens.len()).unwrap_or(u32::MAX);
        if prompt_tokens >= context_tokens_max {
            return Err(Rejection::PromptTooLong { prompt_tokens, context_tokens_max });
        }
        self.arrivals += 1;
        let sequence = Sequence {
            request,
            client,
            arrival: self.arrivals,
            // Its place in the queue decides.
            round: 0,
            tokens: Tokens { prompt: prompt.tokens, generated: Vec::new() },
            chain: PrefixChain::new(prompt.root, prompt.conditions),
            endpoints: prompt.endpoints,
            output_tokens_max: output_tokens_max.min(context_tokens_max - prompt_tokens),
            is_announced: false,
            mask: prompt.is_constrained.then_some(Mask::Awaited { until: Duration::ZERO }),
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

    /// Ends a request for a reason that the device does not know of. Unknown and ended ones are ignored.
    fn end(&mut self, request: RequestId, ending: Ending) {
        if self.waiting.remove(request).is_some() {
            self.end_output(request, ending);
            return;
        }
        let mut running = self.running.iter_mut().flatten();
        let Some(one) = running.find(|one| one.sequence.request == request) else { return };
        match one.stage {
            Stage::Leaving(Leave::Ended) => {}
            Stage::Leaving(Leave::Preempted) => {
                one.stage = Stage::Leaving(Leave::Ended);
                self.end_output(request, ending);
            }
            _ => {
                let slot = one.slot;
                self.finish(slot, ending);
            }
        }
    }

    /// Ends every request, running and waiting; nothing more is captured.
    pub(super) fn end_all(&mut self, ending: Ending) {
        for slot in (0..self.geometry.slots).map(SlotId) {
            if self.running[slot.0 as usize].is_some() {
                let is_told = self.running_at(slot).stage != Stage::Leaving(Leave::Ended);
                let sequence = self.retire(slot);
                if is_told {
                    self.end_output(sequence.request, ending);
                }
            }
        }
        while let Some(sequence) = self.waiting.remove_first(|_| true) {
            self.end_output(sequence.request, ending);
        }
    }

    fn end_output(&mut self, request: RequestId, ending: Ending) {
        self.outputs.push(Output::Ended { request, ending });
    }

    pub(super) fn steps_in_flight_max(&self) -> usize {
        self.limits.steps_in_flight_max.min(self.geometry.frames) as usize
    }
}
