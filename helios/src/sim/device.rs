//! Runs the scheduler's steps on a [`Model`], in order, each complete only when its fence is due.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ids::{Epoch, PageId, SlotId};
use crate::schedule::{Geometry, Operation, Record, Step};

use super::model::{Model, SlotFields};

#[derive(Debug)]
struct Submitted {
    step: Step,
    due: Duration,
    /// Pages of each lane's slot when the step was submitted.
    pages: Vec<(Epoch, SlotId, Vec<PageId>)>,
}

#[derive(Debug)]
pub(crate) struct SimDevice {
    model: Model,
    /// By slot, as the device sees it once everything submitted has run.
    tables: Vec<Vec<Option<PageId>>>,
    in_flight: VecDeque<Submitted>,
}

impl SimDevice {
    pub(crate) fn new(geometry: &Geometry, vocabulary: u32) -> Self {
        let width = geometry.pages_for(geometry.context_tokens_max) as usize;
        Self {
            model: Model::new(vocabulary, geometry.page_tokens, geometry.slots, geometry.pages),
            tables: vec![vec![None; width]; geometry.slots as usize],
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
        let lane_pages = step.lanes.iter().map(|lane| {
            let mapped = self.tables[lane.slot.0 as usize].iter().flatten().copied().collect();
            (lane.epoch, lane.slot, mapped)
        });
        let pages: Vec<(Epoch, SlotId, Vec<PageId>)> = lane_pages.collect();
        for (epoch, slot, mapped) in &pages {
            let others = self.in_flight.iter().flat_map(|submitted| &submitted.pages);
            for (_, other_slot, other_mapped) in others.filter(|other| other.0 != *epoch) {
                assert_ne!(slot, other_slot, "a slot is used while another epoch's step is in flight");
                let shared = mapped.iter().find(|page| other_mapped.contains(page));
                assert_eq!(shared, None, "a page is used while another request's step is in flight");
            }
        }
        self.in_flight.push_back(Submitted { step: step.clone(), due, pages });
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Runs the oldest step if its fence is due, and gives its records.
    pub(crate) fn complete(&mut self, now: Duration) -> Option<Vec<Record>> {
        let submitted = self.in_flight.pop_front_if(|submitted| submitted.due <= now)?;
        let Submitted { step, pages, .. } = submitted;
        let mut records = Vec::new();
        for (lane, (_, _, mapped)) in step.lanes.iter().zip(pages) {
            let table: Vec<Option<PageId>> = mapped.into_iter().map(Some).collect();
            records.push(match step.operation {
                Operation::Initialize { output_limit, .. } => {
                    let fields = SlotFields { epoch: lane.epoch, output_limit, ..SlotFields::default() };
                    self.model.initialize(lane.slot, fields, &step.tokens)
                }
                Operation::Prefill { capacity, consumed, sample } => {
                    assert!(step.tokens.len() <= capacity as usize, "a chunk fits its capacity");
                    self.model.prefill(lane.slot, lane.epoch, consumed, &step.tokens, sample, &table)
                }
                Operation::Decode { capacity } => {
                    assert!(step.lanes.len() <= capacity as usize, "a batch fits its capacity");
                    self.model.decode(lane.slot, lane.epoch, &table)
                }
            });
        }
        Some(records)
    }
}
