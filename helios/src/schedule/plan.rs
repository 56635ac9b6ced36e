//! What to submit next.
//!
//! Decode steps follow one another without waiting, for sampled tokens feed on the device; the host learns of an end
//! one step late, and the device does nothing in between. Initialization and prefill wait until nothing is in flight, and
//! nothing is submitted behind them. Between two decode batches there is at most one prefill chunk, and one request is
//! prefilled at a time, in order of admission.

use std::time::Duration;

use crate::ids::{SlotId, StepId};

use super::event::Ending;
use super::scheduler::Scheduler;
use super::step::{Operation, Step};

impl Scheduler {
    /// Decides on the next step and counts it as submitted; `None` when there is nothing to submit before an event.
    pub fn plan(&mut self, now: Duration) -> Option<&Step> {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.end_all(Ending::ShutDown);
        }
        while self.grow() {
            if !self.in_flight.is_empty() {
                return None;
            }
            self.relieve();
        }
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

    /// Initialization, then chunk after chunk.
    fn prefill(&mut self, slot: SlotId) -> &Step {
        let mut step = self.new_step();
        let one = self.running[slot.0 as usize].as_mut().expect("the slot was just seen prefilling");
        if one.is_initialized {
            let remaining = one.prefill_tokens - one.consumed;
            let capacity = self.chunks.next_capacity(remaining);
            let count = capacity.min(remaining);
            let consumed = one.consumed;
            one.sequence.copy_history(consumed..consumed + count, &mut step.tokens);
            step.lanes.push(one.advance(count));
            step.operation = Operation::Prefill { capacity, consumed, sample: count == remaining };
            self.is_prefill_due = false;
            self.prefilled_tokens += u64::from(count);
        } else {
            one.is_initialized = true;
            one.sequence.copy_history(0..one.prefill_tokens, &mut step.tokens);
            step.lanes.push(one.advance(0));
            step.operation = Operation::Initialize {
                output_limit: one.output_limit,
                generated_before: one.sequence.generated.len() as u32,
            };
        }
        one.map_pages(&mut step.page_updates);
        self.submit_step(step)
    }

    /// Every request that can decode, in order of slots.
    fn decode(&mut self) -> &Step {
        let mut step = self.new_step();
        for one in self.running.iter_mut().flatten().filter(|one| one.is_decodable()) {
            one.map_pages(&mut step.page_updates);
            step.lanes.push(one.advance(1));
        }
        let capacity = self.geometry.decode_capacity(step.lanes.len() as u32);
        step.operation = Operation::Decode { capacity };
        self.is_prefill_due = true;
        self.submit_step(step)
    }

    fn new_step(&mut self) -> Step {
        let mut step = self.spare_steps.pop().unwrap_or_else(Step::empty);
        step.clear();
        self.last_step = StepId(self.last_step.0 + 1);
        step.id = self.last_step;
        step.frame = (step.id.0 % u64::from(self.geometry.frames)) as u32;
        step
    }

    fn submit_step(&mut self, step: Step) -> &Step {
        self.in_flight.push_back(step);
        self.in_flight.back().expect("a step was just pushed")
    }
}
