//! From admission to the first token: initialization, the checkpoint's state, then chunk after chunk.
//!
//! Chunks are one request's each. The request with the least left to compute goes first, so that a short turn does not wait for a long
//! prompt; the oldest gets its chunk after at most [`PASSES_MAX`] of others, so that no prompt waits for ever.

use crate::ids::SlotId;

use super::event::Output;
use super::scheduler::Scheduler;
use super::sequence::Stage;
use super::step::{Operation, Step};

/// Chunks of others in a row while the oldest request still has something to compute.
pub const PASSES_MAX: u32 = 4;

impl Scheduler {
    pub(super) fn next_to_prefill(&self) -> Option<SlotId> {
        let prefilling = || self.running.iter().flatten().filter(|one| one.is_prefilling());
        let next = if self.passes < PASSES_MAX {
            prefilling().min_by_key(|one| (one.remaining_tokens(), one.epoch))
        } else {
            prefilling().min_by_key(|one| one.epoch)
        };
        next.map(|one| one.slot)
    }

    /// The next step of a request that has no token yet.
    pub(super) fn prefill(&mut self, slot: SlotId) -> &Step {
        let one = self.running_at(slot);
        let step = match one.stage {
            Stage::Admitted => self.initialize(slot),
            Stage::Initialized => self.restore(slot),
            _ if one.remaining_tokens() == 0 => self.resume(slot),
            _ => self.compute(slot),
        };
        self.submit_step(step)
    }

    /// Gives the request its slot, after a last look for a deeper checkpoint, and tells it what it starts from.
    fn initialize(&mut self, slot: SlotId) -> Step {
        self.rebase(slot);
        let mut step = self.new_step();
        let one = self.running[slot.0 as usize].as_mut().expect("the slot was just seen prefilling");
        one.sequence.tokens.copy(0..one.prefill_tokens, &mut step.tokens);
        step.operation = Operation::Initialize {
            output_limit: one.output_limit,
            generated_before: one.sequence.tokens.generated.len() as u32,
        };
        step.lanes.push(one.advance(0, false));
        one.map_pages(&mut step.page_updates);
        one.stage = if one.base.is_some() { Stage::Initialized } else { Stage::Live };
        if !one.sequence.is_announced {
            one.sequence.is_announced = true;
            let (request, cached_tokens) = (one.sequence.request, one.base_tokens());
            self.outputs.push(Output::Admitted { request, cached_tokens });
        }
        step
    }

    fn restore(&mut self, slot: SlotId) -> Step {
        let mut step = self.new_step();
        let page_tokens = self.geometry.page_tokens;
        let one = self.running_at_mut(slot);
        let base = one.base.expect("a request without a checkpoint is live once it is initialized");
        step.operation = Operation::Restore(one.state_copy(base.snapshot, base.consumed, page_tokens));
        step.lanes.push(one.advance(base.consumed, false));
        one.stage = Stage::Live;
        step
    }

    fn resume(&mut self, slot: SlotId) -> Step {
        let mut step = self.new_step();
        step.operation = Operation::Resume;
        step.lanes.push(self.running_at_mut(slot).advance(0, true));
        self.is_prefill_due = false;
        step
    }

    /// One chunk, up to the next capture or the end of the history.
    fn compute(&mut self, slot: SlotId) -> Step {
        let mut step = self.new_step();
        let oldest = self.running.iter().flatten().filter(|one| one.is_prefilling());
        let is_oldest = oldest.min_by_key(|one| one.epoch).is_some_and(|one| one.slot == slot);
        self.passes = if is_oldest { 0 } else { self.passes + 1 };
        self.is_prefill_due = false;

        let is_alone = !self.running.iter().flatten().any(|one| one.is_generating());
        let chunks = if is_alone { &self.chunks } else { &self.short_chunks };
        let one = self.running[slot.0 as usize].as_mut().expect("the slot was just seen prefilling");
        let remaining = one.next_stop() - one.consumed;
        let capacity = chunks.next_capacity(remaining);
        let count = capacity.min(remaining);
        let consumed = one.consumed;
        let sample = consumed + count == one.prefill_tokens;
        one.sequence.tokens.copy(consumed..consumed + count, &mut step.tokens);
        one.map_pages(&mut step.page_updates);
        step.lanes.push(one.advance(count, sample));
        step.operation = Operation::Prefill { capacity, consumed, sample };
        self.prefilled_tokens += u64::from(count);
        step
    }
}
