//! What programs keep and compute, with a hash in place of a model.

use crate::ids::{Epoch, PageId, SlotId, SnapshotId, TokenId};
use crate::schedule::{Finish, Record, StateCopy, Status};

use super::random::mix;

/// The end token of every simulated model.
pub(crate) const END_TOKEN: TokenId = TokenId(0);

/// The token after `history`: a function of nothing else but the random stream's position.
pub(crate) fn next_token(history: &[TokenId], stream: u64, vocabulary: u32) -> TokenId {
    let hash = history.iter().fold(mix(stream), |hash, token| mix(hash ^ u64::from(token.0)));
    TokenId((hash % u64::from(vocabulary)) as u32)
}

/// Fields that an initialization gives to a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotFields {
    pub(crate) epoch: Epoch,
    pub(crate) output_limit: u32,
    pub(crate) ignore_eos: bool,
    /// The random stream; 0 samples by history alone.
    pub(crate) seed: u64,
}

#[derive(Clone, Debug, Default)]
struct SlotState {
    fields: SlotFields,
    consumed: u32,
    generated: u32,
    finish: Option<Finish>,
    pending: Option<TokenId>,
    /// By token.
    histogram: Vec<u32>,
    /// Folded over every consumed token, as a recurrent model's state is: no page can stand in for it.
    recurrent: u64,
}

/// What a page holds.
pub(crate) type Page = Vec<Option<TokenId>>;

/// What a snapshot row holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    consumed: u32,
    recurrent: u64,
    partial_page: Option<Page>,
}

/// What a launch is told of one lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneInput<'a> {
    pub(crate) slot: SlotId,
    pub(crate) epoch: Epoch,
    pub(crate) mask: Option<&'a [u32]>,
    /// The slot's row of the page table.
    pub(crate) table: &'a [Option<PageId>],
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    vocabulary: u32,
    page_tokens: u32,
    slots: Vec<SlotState>,
    /// Every token ever written, by page and offset.
    pages: Vec<Page>,
    snapshots: Vec<Option<Snapshot>>,
}

impl Model {
    pub(crate) fn new(vocabulary: u32, page_tokens: u32, slots: u32, pages: u32, snapshots: u32) -> Self {
        Self {
            vocabulary,
            page_tokens,
            slots: vec![SlotState::default(); slots as usize],
            pages: vec![vec![None; page_tokens as usize]; pages as usize],
            snapshots: vec![None; snapshots as usize],
        }
    }

    pub(crate) fn initialize(&mut self, slot: SlotId, fields: SlotFields, prompt: &[TokenId]) -> Record {
        let mut histogram = vec![0; self.vocabulary as usize];
        for token in prompt {
            histogram[token.0 as usize] += 1;
        }
        self.slots[slot.0 as usize] = SlotState { fields, histogram, ..SlotState::default() };
        self.record(slot, Status::Live, None)
    }

    pub(crate) fn prefill(
        &mut self,
        lane: LaneInput<'_>,
        consumed: u32,
        tokens: &[TokenId],
        sample: bool,
    ) -> Record {
        let LaneInput { slot, epoch, mask, table } = lane;
        let state = &self.slots[slot.0 as usize];
        if state.fields.epoch != epoch || state.consumed != consumed || state.pending.is_some() {
            return Record { epoch, ..self.record(slot, Status::Rejected, None) };
        }
        for &token in tokens {
            self.consume(slot, token, table);
        }
        let token = sample.then(|| self.sample(slot, mask, table));
        self.record(slot, Status::Live, token)
    }

    pub(crate) fn decode(&mut self, lane: LaneInput<'_>) -> Record {
        let LaneInput { slot, epoch, mask, table } = lane;
        let state = &self.slots[slot.0 as usize];
        if state.fields.epoch != epoch {
            return Record { epoch, ..self.record(slot, Status::Rejected, None) };
        }
        if state.finish.is_some() {
            return self.record(slot, Status::Inactive, None);
        }
        let Some(pending) = state.pending else {
            return self.record(slot, Status::Rejected, None);
        };
        self.consume(slot, pending, table);
        let token = self.sample(slot, mask, table);
        self.record(slot, Status::Live, Some(token))
    }

    pub(crate) fn restore(&mut self, lane: LaneInput<'_>, copy: StateCopy) -> Record {
        let LaneInput { slot, epoch, table, .. } = lane;
        let state = &mut self.slots[slot.0 as usize];
        let snapshot = self.snapshots[copy.snapshot.0 as usize].as_ref();
        let source = snapshot.filter(|snapshot| snapshot.consumed == copy.consumed);
        let is_fresh = state.fields.epoch == epoch && state.consumed == 0 && state.pending.is_none();
        let Some(source) = source.filter(|_| is_fresh) else {
            return Record { epoch, ..self.record(slot, Status::Rejected, None) };
        };
        state.consumed = source.consumed;
        state.recurrent = source.recurrent;
        assert_eq!(copy.partial_page, partial_page(copy.consumed, self.page_tokens, table));
        if let Some(page) = copy.partial_page {
            let tokens = source.partial_page.as_ref().expect("a partial page was frozen");
            self.pages[page.0 as usize].clone_from(tokens);
        }
        self.record(slot, Status::Live, None)
    }

    pub(crate) fn snapshot(&mut self, lane: LaneInput<'_>, copy: StateCopy) -> Record {
        let LaneInput { slot, epoch, table, .. } = lane;
        let state = &self.slots[slot.0 as usize];
        if state.fields.epoch != epoch || state.consumed != copy.consumed {
            return Record { epoch, ..self.record(slot, Status::Rejected, None) };
        }
        assert_eq!(copy.partial_page, partial_page(copy.consumed, self.page_tokens, table));
        self.snapshots[copy.snapshot.0 as usize] = Some(Snapshot {
            consumed: state.consumed,
            recurrent: state.recurrent,
            partial_page: copy.partial_page.map(|page| self.pages[page.0 as usize].clone()),
        });
        self.record(slot, Status::Live, None)
    }

    /// Samples from what was restored.
    pub(crate) fn resume(&mut self, lane: LaneInput<'_>) -> Record {
        let LaneInput { slot, epoch, mask, table } = lane;
        let state = &self.slots[slot.0 as usize];
        if state.fields.epoch != epoch || state.consumed == 0 || state.pending.is_some() {
            return Record { epoch, ..self.record(slot, Status::Rejected, None) };
        }
        let token = self.sample(slot, mask, table);
        self.record(slot, Status::Live, Some(token))
    }

    pub(crate) fn page_mut(&mut self, page: PageId) -> &mut Page {
        &mut self.pages[page.0 as usize]
    }

    pub(crate) fn snapshot_mut(&mut self, snapshot: SnapshotId) -> &mut Option<Snapshot> {
        &mut self.snapshots[snapshot.0 as usize]
    }

    fn consume(&mut self, slot: SlotId, token: TokenId, table: &[Option<PageId>]) {
        let state = &mut self.slots[slot.0 as usize];
        let (logical, offset) = (state.consumed / self.page_tokens, state.consumed % self.page_tokens);
        let page = table[logical as usize].expect("a program writes to mapped pages only");
        self.pages[page.0 as usize][offset as usize] = Some(token);
        state.consumed += 1;
        state.recurrent = mix(state.recurrent ^ u64::from(token.0));
    }

    /// The history is read from the pages, as attention does. Of what a mask allows, the next token after the one that
    /// the history gives is taken.
    fn sample(&mut self, slot: SlotId, mask: Option<&[u32]>, table: &[Option<PageId>]) -> TokenId {
        let state = &mut self.slots[slot.0 as usize];
        let mut histogram = vec![0; self.vocabulary as usize];
        let mut history = Vec::with_capacity(state.consumed as usize);
        for position in 0..state.consumed {
            let page = table[(position / self.page_tokens) as usize].expect("consumed positions are mapped");
            let written = self.pages[page.0 as usize][(position % self.page_tokens) as usize];
            let token = written.expect("consumed positions were written");
            histogram[token.0 as usize] += 1;
            history.push(token);
        }
        assert_eq!(histogram, state.histogram, "the histogram counts every token of the history once");
        let recurrent = history.iter().fold(0, |state, token| mix(state ^ u64::from(token.0)));
        assert_eq!(recurrent, state.recurrent, "the recurrent state is that of the history");
        let fields = &state.fields;
        let stream =
            if fields.seed == 0 { 0 } else { mix(fields.seed).wrapping_add(u64::from(state.generated)) };
        let mut token = next_token(&history, stream, self.vocabulary);
        while mask.is_some_and(|mask| mask[token.0 as usize / 32] >> (token.0 % 32) & 1 == 0) {
            token = TokenId((token.0 + 1) % self.vocabulary);
        }
        state.histogram[token.0 as usize] += 1;
        state.generated += 1;
        state.pending = Some(token);
        if token == END_TOKEN && !fields.ignore_eos {
            state.finish = Some(Finish::EndToken);
        } else if state.generated == fields.output_limit {
            state.finish = Some(Finish::Length);
        }
        token
    }

    fn record(&self, slot: SlotId, status: Status, token: Option<TokenId>) -> Record {
        let state = &self.slots[slot.0 as usize];
        Record {
            slot,
            epoch: state.fields.epoch,
            status,
            consumed: state.consumed,
            generated: state.generated,
            finish: state.finish,
            token,
        }
    }
}

/// The page that is partly filled after `consumed` tokens.
fn partial_page(consumed: u32, page_tokens: u32, table: &[Option<PageId>]) -> Option<PageId> {
    let is_partial = !consumed.is_multiple_of(page_tokens);
    is_partial.then(|| table[(consumed / page_tokens) as usize].expect("consumed positions are mapped"))
}
