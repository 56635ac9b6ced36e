//! How a request leaves its slot, and how its state is captured on the way and at the end.
//!
//! A capture is a step of its own that freezes exactly what the request has consumed. The checkpoint can be found only
//! once that step is complete; a capture that finds no row, or whose request is gone by then, leaves no trace.

use crate::cache::{Owner, Published};
use crate::ids::SlotId;

use super::event::{Ending, Output};
use super::scheduler::Scheduler;
use super::sequence::{Base, Leave, Sequence, Stage};
use super::step::{Operation, Step};

impl Scheduler {
    /// Tells a running request its end; it keeps its slot until its state is captured.
    pub(super) fn finish(&mut self, slot: SlotId, ending: Ending) {
        let request = self.running_at(slot).sequence.request;
        self.outputs.push(Output::Ended { request, ending });
        self.leave(slot, Leave::Ended);
    }

    /// Lets a request go once its state is captured, or at once when there is nothing to capture.
    pub(super) fn leave(&mut self, slot: SlotId, why: Leave) {
        let one = self.running_at_mut(slot);
        let is_worth_it = one.stage == Stage::Live && one.consumed > one.base_tokens();
        if is_worth_it && self.geometry.snapshots > 0 {
            self.running_at_mut(slot).stage = Stage::Leaving(why);
        } else {
            self.depart(slot, why);
        }
    }

    /// A request whose state is to be captured before anything else happens to it.
    pub(super) fn next_capture(&self) -> Option<SlotId> {
        let mut due = self.running.iter().flatten().filter(|one| one.is_capture_due());
        due.find(|one| one.capturing.is_none()).map(|one| one.slot)
    }

    /// Captures a request's state, with nothing in flight. Where every row is in use, or the prefix has a checkpoint
    /// already, nothing is submitted, and the request goes on as if it were done.
    pub(super) fn capture(&mut self, slot: SlotId) -> Option<&Step> {
        let one = self.running[slot.0 as usize].as_mut().expect("the slot was just seen running");
        let sequence = &mut one.sequence;
        sequence.chain.extend(one.consumed, &sequence.tokens);
        let name = sequence.chain.name(one.consumed, &sequence.tokens);
        if self.cache.refresh(&name) {
            self.captured(slot);
            return None;
        }
        let Some(snapshot) = self.cache.take_snapshot(Owner::Request(one.sequence.request)) else {
            self.captures_skipped += 1;
            self.captured(slot);
            return None;
        };
        one.capturing = Some(snapshot);
        let copy = one.state_copy(snapshot, one.consumed, self.geometry.page_tokens);
        let mut step = self.new_step();
        step.lanes.push(self.running_at_mut(slot).advance(0, false));
        step.operation = Operation::Snapshot(copy);
        Some(self.submit_step(step))
    }

    /// Publishes a complete capture.
    pub(super) fn publish(&mut self, slot: SlotId) {
        let one = self.running[slot.0 as usize].as_mut().expect("the slot was just seen running");
        let snapshot = one.capturing.take().expect("a capture is complete");
        let (sequence, consumed) = (&one.sequence, one.consumed);
        let name = sequence.chain.name(consumed, &sequence.tokens);
        let shared = one.base.map_or(0, |base| base.pages);
        let complete = (consumed / self.geometry.page_tokens) as usize;
        let parent = one.base.map(|base| base.snapshot);
        let pages = &one.pages[shared..complete];
        if self.cache.publish(Owner::Request(sequence.request), snapshot, name, parent, pages)
            == Published::New
        {
            one.base = Some(Base { snapshot, consumed, pages: complete });
            let sequence = &one.sequence;
            let page_tokens = self.geometry.page_tokens;
            self.transfers.store(
                &mut self.cache,
                page_tokens,
                name,
                snapshot,
                &sequence.chain,
                &sequence.tokens,
            );
        }
        self.captured(slot);
    }

    /// Goes on after a capture, whatever became of it.
    fn captured(&mut self, slot: SlotId) {
        let one = self.running_at_mut(slot);
        match one.stage {
            Stage::Leaving(why) => self.depart(slot, why),
            _ => {
                one.captures.pop();
            }
        }
    }

    fn depart(&mut self, slot: SlotId, why: Leave) {
        let sequence = self.retire(slot);
        if why == Leave::Preempted {
            self.waiting.insert(sequence);
        }
    }

    /// Takes a slot's request out. What it holds stays out of use until all steps submitted so far are complete;
    /// any of them may reference the slot, and no later one can. The slot's fields stay as they are on the device: its
    /// epoch is in no later lane and initialization overwrites all of it, so a reset would only cost a launch.
    pub(super) fn retire(&mut self, slot: SlotId) -> Sequence {
        let one = self.running[slot.0 as usize].take().expect("only running requests retire");
        let (owner, last_use) = (Owner::Request(one.sequence.request), self.last_step);
        for &page in one.own_pages() {
            self.cache.release_page(page, owner, last_use);
        }
        if let Some(snapshot) = one.capturing {
            self.cache.release_snapshot(snapshot, owner, last_use);
        }
        if let Some(base) = one.base {
            self.cache.unpin(base.snapshot, last_use);
        }
        self.slots.release(slot, owner, last_use);
        one.sequence
    }
}
