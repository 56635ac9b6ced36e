//! Requests whose samples take a mask, which depends on the token before it.
//!
//! A constrained request has one step in flight at most. While it has one, nothing else is submitted behind it, for a batch without it
//! costs nearly as much as one with it; the same holds for the short time that its mask usually takes. A mask that takes longer
//! holds nobody up: the others go on without it.

use std::time::Duration;

use crate::ids::RequestId;

use super::geometry::Geometry;
use super::scheduler::Scheduler;
use super::sequence::Mask;

/// What others wait for a mask, as one part in so many of what a decode step takes.
const PATIENCE_SHARE: u64 = 10;

impl Geometry {
    /// How long a decode step may be held back for a mask.
    pub(super) fn mask_patience(&self) -> Duration {
        Duration::from_nanos(self.decode[0].cost_ns / PATIENCE_SHARE)
    }
}

impl Scheduler {
    /// Whether a request that could decode waits for its mask, with nothing in flight that would bring it.
    pub fn awaits_masks(&self) -> bool {
        let sequences =
            self.running.iter().flatten().map(|one| &one.sequence).chain(self.waiting.sequences());
        sequences.into_iter().any(|sequence| matches!(sequence.mask, Some(Mask::Awaited { .. })))
    }

    /// A mask for an earlier sample, or for a request that has ended, changes nothing.
    pub(super) fn mask_ready(&mut self, request: RequestId, generated: u32) {
        let running = self.running.iter_mut().flatten().map(|one| &mut one.sequence);
        let mut sequences = running.chain(self.waiting.sequences_mut());
        let Some(sequence) = sequences.find(|sequence| sequence.request == request) else { return };
        let is_awaited = matches!(sequence.mask, Some(Mask::Awaited { .. }));
        if is_awaited && sequence.tokens.generated.len() as u32 == generated {
            sequence.mask = Some(Mask::Ready);
        }
    }

    /// Whether the next decode step is held back for a constrained request.
    pub(super) fn holds_for_masks(&self, now: Duration) -> bool {
        let generating = self.running.iter().flatten().filter(|one| one.is_generating());
        generating.filter_map(|one| one.sequence.mask).any(|mask| match mask {
            Mask::Ready => false,
            Mask::InFlight => true,
            Mask::Awaited { until } => now < until,
        })
    }
}
