//! A request's history, and its state while it holds a slot.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::cache::{History, PrefixChain};
use crate::ids::{ClientId, Epoch, PageId, RequestId, SlotId, SnapshotId, TokenId};

use super::event::Finish;
use super::step::{Lane, PageUpdate, StateCopy};

/// A request across its admissions.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) request: RequestId,
    pub(super) client: ClientId,
    /// Order of arrival, which preemption follows, and admission within a round.
    pub(super) arrival: u64,
    /// In which of the rounds that the queue counts it is its client's turn.
    pub(super) round: u64,
    pub(super) tokens: Tokens,
    /// Names every prefix of the tokens, as far as it was asked to.
    pub(super) chain: PrefixChain,
    /// Message ends.
    pub(super) endpoints: Arc<[u32]>,
    /// Tokens to generate over all admissions.
    pub(super) output_tokens_max: u32,
    /// Whether the request has been told of an admission.
    pub(super) is_announced: bool,
    /// Of a constrained request: whether the mask for the next sample is there.
    pub(super) mask: Option<Mask>,
}

/// The mask for a constrained request's next sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mask {
    Ready,
    /// The sample before it is in flight.
    InFlight,
    /// It is being made; others hold back for it until then.
    Awaited {
        until: Duration,
    },
}

/// Prompt and generated tokens, one behind the other.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    pub(super) prompt: Arc<[TokenId]>,
    pub(super) generated: Vec<TokenId>,
}

impl Tokens {
    pub(super) fn len(&self) -> u32 {
        // Prompt and output fit the context, which is a u32.
        (self.prompt.len() + self.generated.len()) as u32
    }

    /// Appends a range to `into`.
    pub(super) fn copy(&self, range: Range<u32>, into: &mut Vec<TokenId>) {
        let (start, end) = (range.start as usize, range.end as usize);
        let prompt = self.prompt.len();
        into.extend_from_slice(&self.prompt[start.min(prompt)..end.min(prompt)]);
        into.extend_from_slice(&self.generated[start.saturating_sub(prompt)..end.saturating_sub(prompt)]);
    }
}

impl History for Tokens {
    fn token(&self, position: u32) -> TokenId {
        let position = position as usize;
        match position.checked_sub(self.prompt.len()) {
            None => self.prompt[position],
            Some(generated) => self.generated[generated],
        }
    }
}

impl Sequence {
    pub(super) fn remaining_tokens(&self) -> u32 {
        self.output_tokens_max - self.tokens.generated.len() as u32
    }

    /// Most tokens that the device will ever hold of it: the last sampled one is never consumed.
    pub(super) fn consumed_tokens_max(&self) -> u32 {
        self.tokens.len() + self.remaining_tokens() - 1
    }
}

/// A request that holds a slot. Counts are as submitted: they include steps in flight.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) sequence: Sequence,
    pub(super) slot: SlotId,
    pub(super) epoch: Epoch,
    pub(super) stage: Stage,
    /// The checkpoint that its history starts with; pinned.
    pub(super) base: Option<Base>,
    /// By position: the base's, which are read only, then its own.
    pub(super) pages: Vec<PageId>,
    /// Pages that submitted steps have put into the page table.
    pub(super) mapped_pages: usize,
    pub(super) consumed: u32,
    /// Tokens sampled in this admission by submitted steps.
    pub(super) generated: u32,
    /// History at admission, which prefill computes.
    pub(super) prefill_tokens: u32,
    /// Tokens to sample in this admission.
    pub(super) output_limit: u32,
    /// Positions still to be captured, the next one last.
    pub(super) captures: Vec<u32>,
    /// The row that a submitted step freezes its state into.
    pub(super) capturing: Option<SnapshotId>,
    /// What the device is known to have ended it for.
    pub(super) finish: Option<Finish>,
}

/// A checkpoint that a request has pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) snapshot: SnapshotId,
    pub(super) consumed: u32,
    /// Complete pages, at the front of the request's.
    pub(super) pages: usize,
}

/// Where a request is in its admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The device knows nothing of it yet.
    Admitted,
    /// It has its slot, and its base's state is still to be restored.
    Initialized,
    /// Its state is its own.
    Live,
    /// It takes no more steps, and leaves once its state is captured.
    Leaving(Leave),
}

/// Why a request leaves its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// It has been told its end.
    Ended,
    /// It makes room and comes back.
    Preempted,
}

impl Running {
    /// Whether initialization, its base's state or a part of its history is still to come.
    pub(super) fn is_prefilling(&self) -> bool {
        match self.stage {
            Stage::Admitted | Stage::Initialized => true,
            Stage::Live => self.generated == 0 && !self.is_capture_due(),
            Stage::Leaving(_) => false,
        }
    }

    /// Whether one more decode step can sample a token for it.
    pub(super) fn is_decodable(&self) -> bool {
        self.is_generating() && self.sequence.mask.is_none_or(|mask| mask == Mask::Ready)
    }

    /// Whether it has tokens to sample by decode steps, now or once its mask is there.
    pub(super) fn is_generating(&self) -> bool {
        self.stage == Stage::Live
            && (1..self.output_limit).contains(&self.generated)
            && self.finish.is_none()
            && !self.is_capture_due()
    }

    /// Whether its state must be captured before anything changes it.
    pub(super) fn is_capture_due(&self) -> bool {
        match self.stage {
            Stage::Admitted | Stage::Initialized => false,
            Stage::Live => self.captures.last() == Some(&self.consumed),
            Stage::Leaving(_) => true,
        }
    }

    /// Tokens of the base that it starts with.
    pub(super) fn base_tokens(&self) -> u32 {
        self.base.map_or(0, |base| base.consumed)
    }

    /// Tokens of its history that are still to be computed.
    pub(super) fn remaining_tokens(&self) -> u32 {
        self.prefill_tokens - self.consumed.max(self.base_tokens())
    }

    pub(super) fn own_pages(&self) -> &[PageId] {
        &self.pages[self.base.map_or(0, |base| base.pages)..]
    }

    /// Where prefill stops next: at a capture or at the end of the history.
    pub(super) fn next_stop(&self) -> u32 {
        self.captures.last().copied().unwrap_or(self.prefill_tokens).min(self.prefill_tokens)
    }

    /// Counts `tokens` as consumed by a step, and a sample, and describes its lane.
    pub(super) fn advance(&mut self, tokens: u32, samples: bool) -> Lane {
        self.consumed += tokens;
        self.generated += u32::from(samples);
        let is_masked = samples && self.sequence.mask.is_some();
        if is_masked {
            self.sequence.mask = Some(Mask::InFlight);
        }
        Lane {
            request: self.sequence.request,
            slot: self.slot,
            epoch: self.epoch,
            consumed_after: self.consumed,
            generated_after: self.generated,
            samples,
            is_masked,
        }
    }

    /// A copy of its state at `consumed` from or to a snapshot.
    pub(super) fn state_copy(&self, snapshot: SnapshotId, consumed: u32, page_tokens: u32) -> StateCopy {
        let is_partial = !consumed.is_multiple_of(page_tokens);
        let partial_page = is_partial.then(|| self.pages[(consumed / page_tokens) as usize]);
        StateCopy { snapshot, consumed, partial_page }
    }

    /// Appends the page-table entries that the device does not have yet.
    pub(super) fn map_pages(&mut self, updates: &mut Vec<PageUpdate>) {
        let slot = self.slot;
        let unmapped = (0..).zip(&self.pages).skip(self.mapped_pages);
        updates.extend(unmapped.map(|(logical_page, &page)| PageUpdate { slot, logical_page, page }));
        self.mapped_pages = self.pages.len();
    }
}
