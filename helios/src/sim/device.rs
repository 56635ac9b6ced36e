//! Runs the scheduler's steps on a [`Model`], in order, each complete only when its fence is due.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ids::{Epoch, PageId, SlotId, SnapshotId};
use crate::schedule::{Geometry, Lane, Operation, Record, Step};

use super::model::{LaneInput, Model, SlotFields};

#[derive(Debug)]
struct Submitted {
    step: Step,
    due: Duration,
    /// What each lane may touch.
    uses: Vec<Use>,
}

/// What a lane may touch while its step is in flight.
#[derive(Debug)]
struct Use {
    epoch: Epoch,
    slot: SlotId,
    /// The slot's whole table when the step was submitted, as far as it is mapped.
    pages: Vec<PageId>,
    written_pages: Vec<PageId>,
    snapshot: Option<SnapshotId>,
}

impl Use {
    fn check_beside(&self, other: &Self) {
        assert_ne!(self.slot, other.slot, "a slot is used while another epoch's step is in flight");
        let has_snapshot = self.snapshot.is_some() && self.snapshot == other.snapshot;
        assert!(!has_snapshot, "a row is used while another epoch's step is in flight");
        for (writer, reader) in [(self, other), (other, self)] {
            let shared = writer.written_pages.iter().find(|page| reader.pages.contains(page));
            assert_eq!(shared, None, "a page is written while another epoch's step may read it");
        }
    }
}

#[derive(Debug)]
pub(crate) struct SimDevice {
    model: Model,
    page_tokens: u32,
    /// By slot, as the device sees it once everything submitted has run.
    tables: Vec<Vec<Option<PageId>>>,
    in_flight: VecDeque<Submitted>,
}

impl SimDevice {
    pub(crate) fn new(geometry: &Geometry, vocabulary: u32) -> Self {
        let Geometry { page_tokens, pages, snapshots, slots, .. } = *geometry;
        let width = geometry.pages_for(geometry.context_tokens_max) as usize;
        Self {
            model: Model::new(vocabulary, page_tokens, slots, pages, snapshots),
            page_tokens,
            tables: vec![vec![None; width]; slots as usize],
            in_flight: VecDeque::new(),
        }
    }

    /// Takes a step whose fence is passed at `due`, after checking that it uses nothing that another request's
    /// steps in flight use.
    pub(crate) fn submit(&mut self, step: &Step, due: Duration) {
        if let Operation::Initialize { .. } = step.operation {
            self.tables[step.lanes[0].slot.0 as usize].fill(None);
        }
        for update in &step.page_updates {
            self.tables[update.slot.0 as usize][update.logical_page as usize] = Some(update.page);
        }
        let uses: Vec<Use> = step.lanes.iter().map(|lane| self.use_of(step, lane)).collect();
        for one in &uses {
            let others = self.in_flight.iter().flat_map(|submitted| &submitted.uses);
            others.filter(|other| other.epoch != one.epoch).for_each(|other| one.check_beside(other));
        }
        self.in_flight.push_back(Submitted { step: step.clone(), due, uses });
    }

    fn use_of(&self, step: &Step, lane: &Lane) -> Use {
        let table = &self.tables[lane.slot.0 as usize];
        let written = match step.operation {
            Operation::Prefill { consumed, .. } => consumed..lane.consumed_after,
            Operation::Decode { .. } => lane.consumed_after - 1..lane.consumed_after,
            Operation::Restore(copy) => copy.consumed - copy.consumed % self.page_tokens..copy.consumed,
            Operation::Initialize { .. } | Operation::Resume | Operation::Snapshot(_) => 0..0,
        };
        let written = written.start / self.page_tokens..written.end.div_ceil(self.page_tokens);
        Use {
            epoch: lane.epoch,
            slot: lane.slot,
            pages: table.iter().flatten().copied().collect(),
            written_pages: table[written.start as usize..written.end as usize]
                .iter()
                .flatten()
                .copied()
                .collect(),
            snapshot: match step.operation {
                Operation::Restore(copy) | Operation::Snapshot(copy) => Some(copy.snapshot),
                _ => None,
            },
        }
    }

    /// What copies beside the queue read and write.
    pub(crate) fn model_mut(&mut self) -> &mut Model {
        &mut self.model
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Runs the oldest step if its fence is due, and gives its records.
    pub(crate) fn complete(&mut self, now: Duration) -> Option<Vec<Record>> {
        let submitted = self.in_flight.pop_front_if(|submitted| submitted.due <= now)?;
        let Submitted { step, uses, .. } = submitted;
        let mut records = Vec::new();
        for (lane, Use { pages, .. }) in step.lanes.iter().zip(uses) {
            let table: Vec<Option<PageId>> = pages.into_iter().map(Some).collect();
            let Lane { slot, epoch, .. } = *lane;
            let input = LaneInput { slot, epoch, mask: None, table: &table };
            records.push(match step.operation {
                Operation::Initialize { output_limit, .. } => {
                    let fields = SlotFields { epoch, output_limit, ..SlotFields::default() };
                    self.model.initialize(slot, fields, &step.tokens)
                }
                Operation::Restore(copy) => self.model.restore(input, copy),
                Operation::Prefill { capacity, consumed, sample } => {
                    assert!(step.tokens.len() <= capacity as usize, "a chunk fits its capacity");
                    self.model.prefill(input, consumed, &step.tokens, sample)
                }
                Operation::Resume => self.model.resume(input),
                Operation::Decode { capacity } => {
                    assert!(step.lanes.len() <= capacity as usize, "a batch fits its capacity");
                    self.model.decode(input)
                }
                Operation::Snapshot(copy) => self.model.snapshot(input, copy),
            });
        }
        Some(records)
    }
}
