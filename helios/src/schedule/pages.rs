//! Who gets pages and slots: admission, growth a page ahead of decode, preemption.

use crate::cache::Owner;
use crate::ids::{Epoch, SlotId, SnapshotId, StepId};

use super::captures;
use super::event::{Ending, Finish};
use super::geometry::Geometry;
use super::scheduler::Scheduler;
use super::sequence::{Base, Leave, Running, Sequence, Stage};

impl Scheduler {
    /// Admits waiting requests in the order of their turns, as far as slots and pages go.
    pub(super) fn admit(&mut self) {
        while self.slots.available() > 0 {
            let (geometry, cache) = (&self.geometry, &self.cache);
            let fits = |sequence: &Sequence, base: Option<(SnapshotId, u32)>| {
                let shared = base.map_or(0, |(_, consumed)| consumed / geometry.page_tokens);
                let needed = admission_pages(geometry, sequence).saturating_sub(shared);
                needed <= cache.room(base.map(|(snapshot, _)| snapshot))
            };
            let Some((sequence, base)) = self.waiting.take_first(cache, fits) else { return };
            self.start(sequence, base);
        }
    }

    fn start(&mut self, mut sequence: Sequence, base: Option<(SnapshotId, u32)>) {
        let request = sequence.request;
        let slot = self.slots.take(Owner::Request(request)).expect("admission saw a free slot");
        let pages_max = self.geometry.pages_for(sequence.consumed_tokens_max());
        let output_limit = sequence.remaining_tokens();
        sequence.tokens.generated.reserve_exact(output_limit as usize);
        self.last_epoch = Epoch(self.last_epoch.0 + 1);
        let mut one = Running {
            slot,
            epoch: self.last_epoch,
            stage: Stage::Admitted,
            base: None,
            pages: Vec::with_capacity(pages_max as usize),
            mapped_pages: 0,
            consumed: 0,
            generated: 0,
            prefill_tokens: sequence.tokens.len(),
            output_limit,
            captures: Vec::new(),
            capturing: None,
            finish: None,
            sequence,
        };
        let reserved = admission_pages(&self.geometry, &one.sequence);
        if let Some((snapshot, consumed)) = base {
            self.cache.pin(snapshot);
            one.pages = self.cache.pages_of(snapshot);
            one.pages.reserve_exact((pages_max as usize).saturating_sub(one.pages.len()));
            one.base = Some(Base { snapshot, consumed, pages: one.pages.len() });
        }
        while (one.pages.len() as u32) < reserved {
            let page = self.cache.take_page(Owner::Request(request));
            one.pages.push(page.expect("admission saw room for what it reserves"));
        }
        self.running[slot.0 as usize] = Some(one);
    }

    /// Takes a deeper checkpoint than admission found, if one was published while the request waited for its turn.
    pub(super) fn rebase(&mut self, slot: SlotId) {
        let one = self.running[slot.0 as usize].as_mut().expect("the slot was just seen running");
        let sequence = &one.sequence;
        let found = self.cache.find(&sequence.chain, one.prefill_tokens, &sequence.tokens);
        if let Some((snapshot, consumed)) = found.filter(|&(_, consumed)| consumed > one.base_tokens()) {
            self.cache.pin(snapshot);
            let mut pages = self.cache.pages_of(snapshot);
            let shared = pages.len();
            // No step has seen the pages that the deeper checkpoint's take the place of.
            let replaced = one.base.map_or(0, |base| base.pages)..shared.min(one.pages.len());
            for &page in &one.pages[replaced] {
                self.cache.release_page(page, Owner::Request(sequence.request), StepId(0));
            }
            pages.reserve_exact(one.pages.capacity().saturating_sub(shared));
            pages.extend(one.pages.iter().skip(shared));
            one.pages = pages;
            if let Some(base) = one.base.replace(Base { snapshot, consumed, pages: shared }) {
                self.cache.unpin(base.snapshot, StepId(0));
            }
        }
        let computed = one.base_tokens()..one.prefill_tokens;
        self.cached_tokens += u64::from(computed.start);
        one.captures = captures::select(&self.geometry, &one.sequence.endpoints, computed, one.output_limit);
        one.captures.reverse();
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
                if !self.grow_to(slot, (self.needed_pages(slot) + 1).min(pages_max)) {
                    break;
                }
            }
        }
        self.order = order;
        is_short
    }

    /// Makes room when a decoder cannot go on, with nothing in flight: a history that the whole pool cannot hold ends, a
    /// fetch is given up, else the newest decoder gives up its pages and goes on later from what is still cached of it.
    pub(super) fn relieve(&mut self) {
        let too_long = self.order.iter().find(|&&slot| self.needed_pages(slot) > self.geometry.pages);
        if let Some(&slot) = too_long {
            self.finish(slot, Ending::Finished(Finish::Length));
            return;
        }
        if self.abandon_ticket() {
            return;
        }
        let newest = *self.order.last().expect("only decoders run out of pages");
        self.preemptions += 1;
        self.leave(newest, Leave::Preempted);
    }

    pub(super) fn running_at(&self, slot: SlotId) -> &Running {
        self.running[slot.0 as usize].as_ref().expect("the slot was just seen running")
    }

    pub(super) fn running_at_mut(&mut self, slot: SlotId) -> &mut Running {
        self.running[slot.0 as usize].as_mut().expect("the slot was just seen running")
    }

    /// Pages that the next decode step of a slot touches.
    fn needed_pages(&self, slot: SlotId) -> u32 {
        self.geometry.pages_for(self.running_at(slot).consumed + 1)
    }

    fn grow_to(&mut self, slot: SlotId, pages: u32) -> bool {
        let one = self.running[slot.0 as usize].as_mut().expect("the slot was just seen running");
        while (one.pages.len() as u32) < pages {
            match self.cache.take_page(Owner::Request(one.sequence.request)) {
                Some(page) => one.pages.push(page),
                None => return false,
            }
        }
        true
    }
}

/// Pages that a request needs to start: its history and one of output, unless it can only end before.
pub(super) fn reservation_pages(geometry: &Geometry, sequence: &Sequence) -> u32 {
    let history = geometry.pages_for(sequence.tokens.len());
    (history + 1).min(geometry.pages_for(sequence.consumed_tokens_max()))
}

/// A preempted request has fitted before: where the pool is no larger than its history, it takes the whole pool.
pub(super) fn admission_pages(geometry: &Geometry, sequence: &Sequence) -> u32 {
    reservation_pages(geometry, sequence).min(geometry.pages)
}
