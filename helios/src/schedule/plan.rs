//! What to submit next.
//!
//! Decode steps follow one another without waiting, for sampled tokens feed on the device; the host learns of an end
//! one step late, and the device does nothing in between. Everything else waits until nothing is in flight, and
//! nothing is submitted behind it. Captures come first, for requests wait for them. Between two decode batches there is at most
//! one prefill chunk, and one request is prefilled at a time, in order of admission.

use std::time::Duration;

use crate::ids::{SlotId, StepId};

use super::event::{Ending, Output};
use super::scheduler::Scheduler;
use super::sequence::Stage;
use super::step::{Operation, Step};

impl Scheduler {
    /// Decides on the next step and counts it as submitted; `None` when there is nothing to submit before an event.
    pub fn plan(&mut self, now: Duration) -> Option<&Step> {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.end_all(Ending::ShutDown);
        }
        loop {
            while let Some(slot) = self.next_capture() {
                if !self.in_flight.is_empty() {
                    return None;
                }
                if self.capture(slot).is_some() {
                    return self.in_flight.back();
                }
            }
            if !self.grow() {
                break;
            }
            if !self.in_flight.is_empty() {
                return None;
            }
            self.relieve();
        }
        self.fetch(now);
        self.admit();

        let prefill = self.next_to_prefill();
        if let Some(slot) = prefill.filter(|_| self.is_prefill_due || self.order.is_empty()) {
            if !self.in_flight.is_empty() {
                return None;
            }
            return Some(self.prefill(slot));
        }
        let is_decode = |step: &Step| matches!(step.operation, Operation::Decode { .. });
        let has_room = self.in_flight.len() < self.steps_in_flight_max();
        if self.order.is_empty() || !has_room || !self.in_flight.iter().all(is_decode) {
            return None;
        }
        Some(self.decode())
    }

    fn next_to_prefill(&self) -> Option<SlotId> {
        let prefilling = self.running.iter().flatten().filter(|one| one.is_prefilling());
        prefilling.min_by_key(|one| one.epoch).map(|one| one.slot)
    }

    /// Initialization, the base's state, then chunk after chunk, or a sample where nothing is left to compute.
    fn prefill(&mut self, slot: SlotId) -> &Step {
        if self.running_at(slot).stage == Stage::Admitted {
            self.rebase(slot);
        }
        let mut step = self.new_step();
        let one = self.running[slot.0 as usize].as_mut().expect("the slot was just seen prefilling");
        match (one.stage, one.base) {
            (Stage::Admitted, base) => {
                one.sequence.tokens.copy(0..one.prefill_tokens, &mut step.tokens);
                step.operation = Operation::Initialize {
                    output_limit: one.output_limit,
                    generated_before: one.sequence.tokens.generated.len() as u32,
                };
                step.lanes.push(one.advance(0, false));
                one.stage = if base.is_some() { Stage::Initialized } else { Stage::Live };
                if !one.sequence.is_announced {
                    one.sequence.is_announced = true;
                    let (request, cached_tokens) = (one.sequence.request, one.base_tokens());
                    self.outputs.push(Output::Admitted { request, cached_tokens });
                }
            }
            (Stage::Initialized, Some(base)) => {
                let copy = one.state_copy(base.snapshot, base.consumed, self.geometry.page_tokens);
                step.operation = Operation::Restore(copy);
                step.lanes.push(one.advance(base.consumed, false));
                one.stage = Stage::Live;
            }
            _ if one.consumed == one.prefill_tokens => {
                step.operation = Operation::Resume;
                step.lanes.push(one.advance(0, true));
                self.is_prefill_due = false;
            }
            _ => {
                let remaining = one.next_stop() - one.consumed;
                let chunks = if self.order.is_empty() { &self.chunks } else { &self.short_chunks };
                let capacity = chunks.next_capacity(remaining);
                let count = capacity.min(remaining);
                let consumed = one.consumed;
                let sample = consumed + count == one.prefill_tokens;
                one.sequence.tokens.copy(consumed..consumed + count, &mut step.tokens);
                step.lanes.push(one.advance(count, sample));
                step.operation = Operation::Prefill { capacity, consumed, sample };
                self.is_prefill_due = false;
                self.prefilled_tokens += u64::from(count);
            }
        }
        one.map_pages(&mut step.page_updates);
        self.submit_step(step)
    }

    /// Every request that can decode, in order of slots.
    fn decode(&mut self) -> &Step {
        let mut step = self.new_step();
        for one in self.running.iter_mut().flatten().filter(|one| one.is_decodable()) {
            one.map_pages(&mut step.page_updates);
            step.lanes.push(one.advance(1, true));
        }
        let capacity = self.geometry.decode_capacity(step.lanes.len() as u32);
        step.operation = Operation::Decode { capacity };
        self.is_prefill_due = true;
        self.submit_step(step)
    }

    pub(super) fn new_step(&mut self) -> Step {
        let mut step = self.spare_steps.pop().unwrap_or_else(Step::empty);
        step.clear();
        self.last_step = StepId(self.last_step.0 + 1);
        step.id = self.last_step;
        step.frame = (step.id.0 % u64::from(self.geometry.frames)) as u32;
        step
    }

    pub(super) fn submit_step(&mut self, step: Step) -> &Step {
        self.in_flight.push_back(step);
        self.in_flight.back().expect("a step was just pushed")
    }
}
