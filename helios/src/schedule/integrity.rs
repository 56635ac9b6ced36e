//! The scheduler's invariants, for tests and simulations: checked whole after every step.

use crate::cache::{Holdings, IntegrityError, Owner};
use crate::ids::{SlotId, StepId};

use super::scheduler::Scheduler;
use super::sequence::{Running, Stage};

impl Scheduler {
    /// Checks every invariant.
    pub fn check_integrity(&self) -> Result<(), IntegrityError> {
        let running = || self.running.iter().flatten();
        self.cache.check_integrity(&self.holdings())?;
        let owned_slots = running().map(|one| (Owner::Request(one.sequence.request), one.slot));
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

    fn holdings(&self) -> Holdings {
        let mut holdings = Holdings::default();
        for one in self.running.iter().flatten() {
            let owner = Owner::Request(one.sequence.request);
            holdings.pages.extend(one.own_pages().iter().map(|&page| (owner, page)));
            holdings.snapshots.extend(one.capturing.map(|snapshot| (owner, snapshot)));
            holdings.pins.extend(one.base.map(|base| base.snapshot));
        }
        for (&transfer, ticket) in &self.transfers.tickets {
            let owner = Owner::Transfer(transfer);
            holdings.pages.extend(ticket.pages.iter().map(|&page| (owner, page)));
            holdings.snapshots.push((owner, ticket.snapshot));
            holdings.pins.extend(ticket.parent);
        }
        holdings.copies.extend(self.transfers.copied());
        holdings
    }

    fn check_running(&self, slot: SlotId, one: &Running) -> Result<(), IntegrityError> {
        let request = one.sequence.request;
        let sampled_in_flight = self
            .in_flight
            .iter()
            .flat_map(|step| &step.lanes)
            .filter(|lane| lane.epoch == one.epoch && lane.samples && one.finish.is_none())
            .count() as u32;
        let table_pages = self.geometry.pages_for(self.geometry.context_tokens_max);
        let generated_before = one.prefill_tokens as usize - one.sequence.tokens.prompt.len();
        let delivered = one.sequence.tokens.generated.len() - generated_before;
        let base_pages = one.base.map(|base| self.cache.pages_of(base.snapshot)).unwrap_or_default();
        let problem = if one.slot != slot || one.epoch > self.last_epoch {
            "is in a wrong slot or epoch"
        } else if self.geometry.pages_for(one.consumed) > one.pages.len() as u32 {
            "consumes tokens that it has no page for"
        } else if one.pages.len() as u32 > table_pages || one.mapped_pages > one.pages.len() {
            "has more pages than its table"
        } else if one.generated > one.output_limit {
            "generates more than its limit"
        } else if one.generated != delivered as u32 + sampled_in_flight {
            "has lost a token"
        } else if !one.pages.starts_with(&base_pages) {
            "does not start with its checkpoint's pages"
        } else if one.stage == Stage::Live && one.consumed < one.base_tokens() {
            "has not restored its checkpoint"
        } else {
            return Ok(());
        };
        Err(IntegrityError(format!("request {request} {problem}: {one:?}")))
    }
}
