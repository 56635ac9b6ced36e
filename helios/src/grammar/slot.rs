//! A constrained lane, as the thread that computes masks holds it.

use super::{Constraint, GrammarError, MaskState};
use crate::ids::TokenId;

/// A request's constraint and its latest mask.
///
/// How the runtime uses it:
///
/// - The mask for a step depends on the token of the step before. So while a batch has constrained lanes, one step is in flight
///   instead of two, and lanes without a constraint in it have nothing to wait for but the others.
/// - Slots belong to one worker beside the model thread, keyed by request. [`Self::start`] runs with the prefill, so that the first
///   mask is ready when the prompt's last chunk is launched (`PREFILL_FIELD_MASKED`).
/// - As soon as a completion record's token is known, the model thread sends (request, token) through a bounded queue that holds one
///   entry a lane. The worker calls [`Self::advance`] for each and sends back the masks of the step; the model thread copies
///   them into `GRAMMAR_MASKS` and sets `LANE_MASKED` for these lanes. For a request that is alone it calls it itself, once the
///   step that takes the mask has begun.
/// - A token that ends the request otherwise (a stop string, the length) need not be sent. A request that leaves in any way has its
///   slot dropped. A preempted one keeps its slot: the tokens that it generated stay accepted.
/// - [`MaskState::Complete`] finishes the request with reason "stop" without a step for the end token. An error fails this
///   request alone: its lane is cancelled, and the slot dropped.
///
/// A mask never takes longer than the limits that its grammar was compiled with; the worker needs no deadline.
#[derive(Debug)]
pub struct GrammarSlot {
    constraint: Constraint,
    mask: Vec<u32>,
}

impl GrammarSlot {
    pub fn new(constraint: Constraint) -> Self {
        Self { mask: vec![0; constraint.mask_words()], constraint }
    }

    /// The mask for the first token.
    ///
    /// # Errors
    /// Those of [`Constraint::mask`].
    pub fn start(&mut self) -> Result<MaskState, GrammarError> {
        self.constraint.mask(&mut self.mask)
    }

    /// Takes the sampled token, and computes the mask for the one after it.
    ///
    /// # Errors
    /// Those of [`Constraint::accept`] and [`Constraint::mask`].
    pub fn advance(&mut self, token: TokenId) -> Result<MaskState, GrammarError> {
        self.constraint.accept(token)?;
        self.constraint.mask(&mut self.mask)
    }

    /// The latest mask.
    pub fn mask(&self) -> &[u32] {
        &self.mask
    }
}
