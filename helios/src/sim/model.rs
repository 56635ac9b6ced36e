//! What programs keep and compute, with a hash in place of a model.

use crate::ids::{Epoch, PageId, SlotId, TokenId};
use crate::schedule::{Finish, Record, Status};

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
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    vocabulary: u32,
    page_tokens: u32,
    slots: Vec<SlotState>,
    /// Every token ever written, by page and offset.
    pages: Vec<Vec<Option<TokenId>>>,
}

impl Model {
    pub(crate) fn new(vocabulary: u32, page_tokens: u32, slots: u32, pages: u32) -> Self {
        Self {
            vocabulary,
            page_tokens,
            slots: vec![SlotState::default(); slots as usize],
            pages: vec![vec![None; page_tokens as usize]; pages as usize],
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

    /// `table` is the slot's row of the page table.
    pub(crate) fn prefill(
        &mut self,
        slot: SlotId,
        epoch: Epoch,
        consumed: u32,
        tokens: &[TokenId],
        sample: bool,
        table: &[Option<PageId>],
    ) -> Record {
        let state = &self.slots[slot.0 as usize];
        if state.fields.epoch != epoch || state.consumed != consumed || state.pending.is_some() {
            return Record { epoch, ..self.record(slot, Status::Rejected, None) };
        }
        for &token in tokens {
            self.consume(slot, token, table);
        }
        let token = sample.then(|| self.sample(slot, table));
        self.record(slot, Status::Live, token)
    }

    pub(crate) fn decode(&mut self, slot: SlotId, epoch: Epoch, table: &[Option<PageId>]) -> Record {
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
        let token = self.sample(slot, table);
        self.record(slot, Status::Live, Some(token))
    }

    fn consume(&mut self, slot: SlotId, token: TokenId, table: &[Option<PageId>]) {
        let state = &mut self.slots[slot.0 as usize];
        let (logical, offset) = (state.consumed / self.page_tokens, state.consumed % self.page_tokens);
        let page = table[logical as usize].expect("a program writes to mapped pages only");
        self.pages[page.0 as usize][offset as usize] = Some(token);
        state.consumed += 1;
    }

    /// The history is read from the pages, as attention does.
    fn sample(&mut self, slot: SlotId, table: &[Option<PageId>]) -> TokenId {
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
        let fields = &state.fields;
        let stream =
            if fields.seed == 0 { 0 } else { mix(fields.seed).wrapping_add(u64::from(state.generated)) };
        let token = next_token(&history, stream, self.vocabulary);
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
