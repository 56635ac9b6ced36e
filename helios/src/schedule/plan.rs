//! What to submit next.
//!
//! Decode steps follow one another without waiting, for sampled tokens feed on the device; the host learns of an end
//! one step late, and the device does nothing in between. Everything else waits until nothing is in flight, and
//! nothing is submitted behind it. Captures come first, for requests wait for them. Between two decode batches there is at most
//! one prefill chunk.

use std::time::Duration;

use crate::ids::StepId;

use super::event::Ending;
use super::scheduler::Scheduler;
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
        let is_held = !has_room || !self.in_flight.iter().all(is_decode) || self.holds_for_masks(now);
        if self.order.is_empty() || is_held {
            return None;
        }
        Some(self.decode())
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
