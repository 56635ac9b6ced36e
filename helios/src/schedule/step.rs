//! A step: one program launch, with everything that its inputs are packed from.

use crate::ids::{Epoch, PageId, RequestId, SlotId, SnapshotId, StepId, TokenId};

/// One launch. Steps are submitted and complete in the order of their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub id: StepId,
    /// Completion frame that the launch writes.
    pub frame: u32,
    pub operation: Operation,
    /// Live lanes, from lane 0 on; the capacity's other lanes are empty. All but decode have one.
    pub lanes: Vec<Lane>,
    /// Initialize: the history that the histogram counts. Prefill: the chunk. Otherwise none, the device has them.
    pub tokens: Vec<TokenId>,
    /// Page-table entries to write before the launch. Initialize: all that the slot has.
    pub page_updates: Vec<PageUpdate>,
}

/// Which program a step launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Gives the slot to the lane's request, from nothing.
    Initialize {
        /// Tokens that the request may still sample.
        output_limit: u32,
        /// Tokens sampled before a preemption; names the random stream to go on with.
        generated_before: u32,
    },
    /// Gives an initialized slot the state that a snapshot holds.
    Restore(StateCopy),
    Prefill {
        capacity: u32,
        /// Position of the chunk's first token.
        consumed: u32,
        /// Whether the chunk ends the history, so that a token is sampled.
        sample: bool,
    },
    Decode {
        capacity: u32,
    },
    /// Samples from a restored state whose history is the whole prompt.
    Resume,
    /// Freezes the slot's state into a snapshot.
    Snapshot(StateCopy),
}

/// A copy between a slot's state and a snapshot row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateCopy {
    pub snapshot: SnapshotId,
    /// Tokens that the copied state has consumed.
    pub consumed: u32,
    /// The slot's page that is partly filled at that position; `None` where a page ends there.
    pub partial_page: Option<PageId>,
}

/// A request in a step, and what its completion record must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    pub request: RequestId,
    pub slot: SlotId,
    pub epoch: Epoch,
    pub consumed_after: u32,
    pub generated_after: u32,
    /// Whether the launch samples a token for it.
    pub samples: bool,
    /// Whether its mask applies to that sample.
    pub is_masked: bool,
}

/// One entry of a slot's page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageUpdate {
    pub slot: SlotId,
    pub logical_page: u32,
    pub page: PageId,
}

impl Step {
    /// A step to be filled; steps are reused, so that planning does not allocate.
    pub(super) fn empty() -> Self {
        Self {
            id: StepId(0),
            frame: 0,
            operation: Operation::Decode { capacity: 0 },
            lanes: Vec::new(),
            tokens: Vec::new(),
            page_updates: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.lanes.clear();
        self.tokens.clear();
        self.page_updates.clear();
    }
}
