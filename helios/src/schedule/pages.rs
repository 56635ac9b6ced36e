//! Who gets pages and slots: admission, growth a page ahead of decode, preemption, retirement.

use crate::ids::{Epoch, PageId, SlotId};

use super::event::{Ending, Finish, Output};
use super::geometry::Geometry;
use super::scheduler::Scheduler;
use super::sequence::{Running, Sequence};

impl Scheduler {
    /// Admits waiting requests in order of arrival, as far as slots and pages go.
    pub(super) fn admit(&mut self) {
        while self.slots.available() > 0 && self.pages.available() > 0 {
            let (geometry, available) = (&self.geometry, self.pages.available());
            let fits = |sequence: &Sequence| admission_pages(geometry, sequence) <= available;
            let Some(sequence) = self.waiting.take_first(fits) else { return };
            self.start(sequence);
        }
    }

    fn start(&mut self, mut sequence: Sequence) {
        let request = sequence.request;
        let reserved = admission_pages(&self.geometry, &sequence);
        let pages_max = self.geometry.pages_for(sequence.consumed_tokens_max());
        let mut pages = Vec::with_capacity(pages_max as usize);
        pages.extend((0..reserved).map_while(|_| self.pages.take(request)));
        let slot = self.slots.take(request).expect("admission saw a free slot");
        if !sequence.is_announced {
            sequence.is_announced = true;
            self.outputs.push(Output::Admitted { request });
        }
        let output_limit = sequence.remaining_tokens();
        sequence.generated.reserve_exact(output_limit as usize);
        self.last_epoch = Epoch(self.last_epoch.0 + 1);
        self.running[slot.0 as usize] = Some(Running {
            slot,
            epoch: self.last_epoch,
            pages,
            mapped_pages: 0,
            is_initialized: false,
            consumed: 0,
            prefill_tokens: sequence.history_tokens(),
            output_limit,
            sequence,
        });
    }

    /// Gives decoders the page that their next token needs, then one ahead, oldest first; whether one stays without.
    pub(super) fn grow(&mut self) -> bool {
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(self.running.iter().flatten().filter(|one| one.is_decodable()).map(|one| one.slot));
        order.sort_unstable_by_key(|&slot| self.running_at(slot).sequence.arrival);
        let mut is_short = false;
        for &slot in &order {
            is_short |= !self.grow_to(slot, self.needed_pages(slot));
        }
        if !is_short {
            for &slot in &order {
                let one = self.running_at(slot);
                let pages_max = self.geometry.pages_for(one.prefill_tokens + one.output_limit - 1);
                // A spare page is taken when there is one; without it the request still runs.
                if self.pages.available() == 0
                    || !self.grow_to(slot, (self.needed_pages(slot) + 1).min(pages_max))
                {
                    break;
                }
            }
        }
        self.order = order;
        is_short
    }

    /// Makes room when a decoder cannot go on, with nothing in flight: a history that the whole pool cannot hold ends,
    /// else the newest decoder gives up its pages and is computed again later.
    pub(super) fn relieve(&mut self) {
        let too_long = self.order.iter().find(|&&slot| self.needed_pages(slot) > self.geometry.pages);
        if let Some(&slot) = too_long {
            self.end(slot, Ending::Finished(Finish::Length));
            return;
        }
        let newest = *self.order.last().expect("only decoders run out of pages");
        let sequence = self.retire(newest);
        self.waiting.insert(sequence);
        self.preemptions += 1;
    }

    /// Takes a slot's request out. Its slot and pages stay out of use until all steps submitted so far are complete;
    /// any of them may reference the slot, and no later one can. The slot's fields stay as they are on the device: its
    /// epoch is in no later lane and initialization overwrites all of it, so a reset would only cost a launch.
    pub(super) fn retire(&mut self, slot: SlotId) -> Sequence {
        let one = self.running[slot.0 as usize].take().expect("only running requests retire");
        let request = one.sequence.request;
        for &page in &one.pages {
            self.pages.release(page, request, self.last_step);
        }
        self.slots.release(slot, request, self.last_step);
        one.sequence
    }

    pub(super) fn running_at(&self, slot: SlotId) -> &Running {
        self.running[slot.0 as usize].as_ref().expect("the slot was just seen running")
    }

    /// Pages that the next decode step of a slot touches.
    fn needed_pages(&self, slot: SlotId) -> u32 {
        self.geometry.pages_for(self.running_at(slot).consumed + 1)
    }

    fn grow_to(&mut self, slot: SlotId, pages: u32) -> bool {
        let one = self.running[slot.0 as usize].as_mut().expect("the slot was just seen running");
        while (one.pages.len() as u32) < pages {
            let page: PageId = match self.pages.take(one.sequence.request) {
                Some(page) => page,
                None => return false,
            };
            one.pages.push(page);
        }
        true
    }
}

/// Pages that a request needs to start: its history and one of output, unless it can only end before.
pub(super) fn reservation_pages(geometry: &Geometry, sequence: &Sequence) -> u32 {
    let history = geometry.pages_for(sequence.history_tokens());
    (history + 1).min(geometry.pages_for(sequence.consumed_tokens_max()))
}

/// A preempted request has fitted before: where the pool is no larger than its history, it takes the whole pool.
fn admission_pages(geometry: &Geometry, sequence: &Sequence) -> u32 {
    reservation_pages(geometry, sequence).min(geometry.pages)
}
