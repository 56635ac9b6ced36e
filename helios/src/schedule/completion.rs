//! What a completed step says: checked in full against what was submitted, then applied.

use std::time::Duration;

use crate::ids::{Epoch, SlotId, StepId};

use super::event::{Ending, Finish, Output, Record, Status};
use super::scheduler::Scheduler;
use super::sequence::{Leave, Mask, Running, Stage};
use super::step::{Lane, Operation, Step};

/// A completion that contradicts what was submitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompletionError {
    #[error("a completion arrived with nothing in flight")]
    NothingInFlight,
    #[error("step {step} has {lanes} lanes and its completion {records} records")]
    RecordCount { step: StepId, lanes: usize, records: usize },
    #[error(
        "step {step} ran slot {slot} at epoch {epoch} and its record says slot {said_slot}, epoch {said_epoch}"
    )]
    Identity { step: StepId, slot: SlotId, epoch: Epoch, said_slot: SlotId, said_epoch: Epoch },
    #[error(
        "step {step} was refused by slot {slot}: it does not hold epoch {epoch} at the expected position"
    )]
    Rejected { step: StepId, slot: SlotId, epoch: Epoch },
    #[error("step {step} left slot {slot} at {said} and should have left it at {should}")]
    Progress { step: StepId, slot: SlotId, said: String, should: String },
}

impl Scheduler {
    /// Applies the oldest step's records and lets go of what only it could reference.
    pub(super) fn complete(&mut self, records: &[Record], now: Duration) -> Result<(), CompletionError> {
        let step = self.in_flight.front().ok_or(CompletionError::NothingInFlight)?;
        if step.lanes.len() != records.len() {
            let (lanes, records) = (step.lanes.len(), records.len());
            return Err(CompletionError::RecordCount { step: step.id, lanes, records });
        }
        for (lane, record) in step.lanes.iter().zip(records) {
            validate(step.id, lane, record, self.holder(lane))?;
        }
        let step = self.in_flight.pop_front().expect("the front was just read");
        self.cache.complete(step.id);
        self.slots.complete(step.id);
        for (index, (lane, record)) in (0..).zip(step.lanes.iter().zip(records)) {
            if self.holder(lane).is_some() {
                self.apply(&step, index, lane, record, now);
            }
        }
        self.spare_steps.push(step);
        Ok(())
    }

    /// The request that a lane was submitted for, unless it has ended or was preempted since.
    fn holder(&self, lane: &Lane) -> Option<&Running> {
        let one = self.running[lane.slot.0 as usize].as_ref()?;
        (one.epoch == lane.epoch).then_some(one)
    }

    /// A token that comes after its request's end is told to nobody, but it is a part of the state.
    fn apply(&mut self, step: &Step, index: u32, lane: &Lane, record: &Record, now: Duration) {
        if let Operation::Snapshot(_) = step.operation {
            self.publish(lane.slot);
            return;
        }
        let mask_patience = self.geometry.mask_patience();
        let one = self.running[lane.slot.0 as usize].as_mut().expect("the lane has a holder");
        if lane.is_masked {
            one.sequence.mask = Some(Mask::Awaited { until: now.saturating_add(mask_patience) });
        }
        let is_told = !matches!(one.stage, Stage::Leaving(Leave::Ended));
        if let Some(token) = record.token {
            one.sequence.tokens.generated.push(token);
            if is_told {
                let frame = step.frame;
                self.outputs.push(Output::Token { request: lane.request, token, frame, lane: index });
            }
        }
        if let Some(finish) = record.finish.filter(|_| one.finish.is_none()) {
            one.finish = Some(finish);
            // What was submitted behind its end does nothing.
            (one.consumed, one.generated) = (record.consumed, record.generated);
            if is_told {
                self.finish(lane.slot, Ending::Finished(finish));
            }
        }
    }
}

fn validate(
    step: StepId,
    lane: &Lane,
    record: &Record,
    holder: Option<&Running>,
) -> Result<(), CompletionError> {
    let (slot, epoch) = (lane.slot, lane.epoch);
    if (record.slot, record.epoch) != (slot, epoch) {
        let (said_slot, said_epoch) = (record.slot, record.epoch);
        return Err(CompletionError::Identity { step, slot, epoch, said_slot, said_epoch });
    }
    let is_expected = match (record.status, holder) {
        (Status::Rejected, _) => return Err(CompletionError::Rejected { step, slot, epoch }),
        // The device stops at an end that the host had not read when it submitted this step.
        (Status::Inactive, None) => true,
        (Status::Inactive, Some(one)) => one.finish.is_some(),
        (Status::Live, None) => has_progressed(lane, record),
        (Status::Live, Some(one)) => has_progressed(lane, record) && is_finish_due(lane, record, one),
    };
    if is_expected {
        return Ok(());
    }
    Err(CompletionError::Progress { step, slot, said: format!("{record:?}"), should: format!("{lane:?}") })
}

fn has_progressed(lane: &Lane, record: &Record) -> bool {
    record.consumed == lane.consumed_after
        && record.generated == lane.generated_after
        && record.token.is_some() == lane.samples
}

fn is_finish_due(lane: &Lane, record: &Record, one: &Running) -> bool {
    if !lane.samples {
        return record.finish == one.finish;
    }
    let is_at_limit = lane.generated_after == one.output_limit;
    match record.finish {
        None => !is_at_limit,
        Some(Finish::Length) => is_at_limit,
        Some(Finish::EndToken) => true,
    }
}
