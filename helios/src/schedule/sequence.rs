//! A request's history, and its state while it holds a slot.

use std::ops::Range;
use std::sync::Arc;

use crate::ids::{Epoch, PageId, RequestId, SlotId, TokenId};

use super::step::{Lane, PageUpdate};

/// A request across its admissions.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) request: RequestId,
    /// Order of arrival, which admission and preemption follow.
    pub(super) arrival: u64,
    pub(super) prompt: Arc<[TokenId]>,
    pub(super) generated: Vec<TokenId>,
    /// Tokens to generate over all admissions.
    pub(super) output_tokens_max: u32,
    /// Whether the request has been told of an admission.
    pub(super) is_announced: bool,
}

impl Sequence {
    pub(super) fn history_tokens(&self) -> u32 {
        // Prompt and output fit the context, which is a u32.
        (self.prompt.len() + self.generated.len()) as u32
    }

    pub(super) fn remaining_tokens(&self) -> u32 {
        self.output_tokens_max - self.generated.len() as u32
    }

    /// Most tokens that the device will ever hold of it: the last sampled one is never consumed.
    pub(super) fn consumed_tokens_max(&self) -> u32 {
        self.history_tokens() + self.remaining_tokens() - 1
    }

    /// Appends a range of prompt and generated tokens to `into`.
    pub(super) fn copy_history(&self, range: Range<u32>, into: &mut Vec<TokenId>) {
        let (start, end) = (range.start as usize, range.end as usize);
        let prompt = self.prompt.len();
        into.extend_from_slice(&self.prompt[start.min(prompt)..end.min(prompt)]);
        into.extend_from_slice(&self.generated[start.saturating_sub(prompt)..end.saturating_sub(prompt)]);
    }
}

/// A request that holds a slot. Counts are as submitted: they include steps in flight.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) sequence: Sequence,
    pub(super) slot: SlotId,
    pub(super) epoch: Epoch,
    pub(super) pages: Vec<PageId>,
    /// Pages that submitted steps have put into the page table.
    pub(super) mapped_pages: usize,
    pub(super) is_initialized: bool,
    pub(super) consumed: u32,
    /// History at admission, which prefill computes.
    pub(super) prefill_tokens: u32,
    /// Tokens to sample in this admission.
    pub(super) output_limit: u32,
}

impl Running {
    pub(super) fn is_prefilling(&self) -> bool {
        self.consumed < self.prefill_tokens
    }

    /// Tokens sampled in this admission by submitted steps.
    pub(super) fn generated(&self) -> u32 {
        if self.is_prefilling() { 0 } else { self.consumed + 1 - self.prefill_tokens }
    }

    /// Whether one more decode step can sample a token for it.
    pub(super) fn is_decodable(&self) -> bool {
        !self.is_prefilling() && self.generated() < self.output_limit
    }

    /// Counts `tokens` as consumed by a step and describes its lane.
    pub(super) fn advance(&mut self, tokens: u32) -> Lane {
        self.consumed += tokens;
        Lane {
            request: self.sequence.request,
            slot: self.slot,
            epoch: self.epoch,
            consumed_after: self.consumed,
            generated_after: self.generated(),
            samples: self.generated() > 0,
        }
    }

    /// Appends the page-table entries that the device does not have yet.
    pub(super) fn map_pages(&mut self, updates: &mut Vec<PageUpdate>) {
        let slot = self.slot;
        let unmapped = (0..).zip(&self.pages).skip(self.mapped_pages);
        updates.extend(unmapped.map(|(logical_page, &page)| PageUpdate { slot, logical_page, page }));
        self.mapped_pages = self.pages.len();
    }
}
