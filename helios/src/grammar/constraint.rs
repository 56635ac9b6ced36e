//! The state of one constrained answer.

use llguidance::Matcher;

use super::vocabulary::{Vocabulary, clear_bit, set_bit};
use super::{GrammarError, is_panic, reason_of};
use crate::ids::TokenId;

/// What a mask leaves to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskState {
    /// The answer is not complete: no end token is allowed.
    Open,
    /// The answer may end here or go on.
    Accepting,
    /// The answer is complete: nothing but the core's end tokens is allowed.
    Complete,
}

/// A grammar and how far an answer has come in it.
///
/// Clones share nothing, so that no request waits for another's lock or spends another's limits.
pub struct Constraint {
    matcher: Matcher,
    vocabulary: Vocabulary,
    ended: bool,
}

impl Clone for Constraint {
    fn clone(&self) -> Self {
        Self { matcher: self.matcher.deep_clone(), vocabulary: self.vocabulary.clone(), ended: self.ended }
    }
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Constraint").field("is_stopped", &self.is_stopped()).finish_non_exhaustive()
    }
}

impl Constraint {
    pub(super) fn new(matcher: Matcher, vocabulary: Vocabulary) -> Self {
        Self { matcher, vocabulary, ended: false }
    }

    /// Words of a mask.
    pub fn mask_words(&self) -> usize {
        self.vocabulary.mask_words()
    }

    /// Writes which tokens may come next: bit `t % 32` of word `t / 32` allows token `t`.
    ///
    /// # Errors
    /// [`GrammarError::TooComplex`] beyond the limits of a step, [`GrammarError::DeadEnd`] where nothing can follow.
    ///
    /// # Panics
    /// If `into` does not hold [`Self::mask_words`] words.
    pub fn mask(&mut self, into: &mut [u32]) -> Result<MaskState, GrammarError> {
        assert_eq!(into.len(), self.mask_words(), "a mask has one bit for each token of the core");
        if self.is_stopped() && !self.matcher.is_error() {
            into.fill(0);
            self.allow_ends(into);
            return Ok(MaskState::Complete);
        }
        let allowed = self.matcher.compute_mask().map_err(|error| step_error(&error.to_string()))?;
        for ((word, allowed), named) in into.iter_mut().zip(allowed.as_slice()).zip(&*self.vocabulary.named) {
            *word = allowed & named;
        }
        // A grammar may name tokens by id. The end is not among them.
        for &token in &*self.vocabulary.ends {
            clear_bit(into, token);
        }
        let continues = into.iter().any(|word| *word != 0);
        let accepts = self.accepts()?;
        if accepts {
            self.allow_ends(into);
        }
        match (accepts, continues) {
            (true, true) => Ok(MaskState::Accepting),
            (true, false) => Ok(MaskState::Complete),
            (false, true) => Ok(MaskState::Open),
            (false, false) => Err(GrammarError::DeadEnd),
        }
    }

    /// Takes the token that was sampled under the latest mask.
    ///
    /// # Errors
    /// [`GrammarError::Refused`] for a token that the mask does not allow.
    pub fn accept(&mut self, token: TokenId) -> Result<(), GrammarError> {
        if self.ended || self.matcher.is_error() {
            return Err(GrammarError::Refused(token));
        }
        if self.vocabulary.is_end(token) {
            self.ended = self.accepts()?;
            return if self.ended { Ok(()) } else { Err(GrammarError::Refused(token)) };
        }
        if self.matcher.is_stopped() || !self.vocabulary.is_named(token) {
            return Err(GrammarError::Refused(token));
        }
        self.matcher.consume_token(token.0).map_err(|_| GrammarError::Refused(token))
    }

    /// Whether nothing but the end can follow, or the end has come.
    pub fn is_stopped(&self) -> bool {
        self.ended || self.matcher.is_stopped()
    }

    fn accepts(&mut self) -> Result<bool, GrammarError> {
        self.matcher.is_accepting().map_err(|error| step_error(&error.to_string()))
    }

    fn allow_ends(&self, mask: &mut [u32]) {
        for &token in &*self.vocabulary.ends {
            set_bit(mask, token);
        }
    }
}

/// llguidance reports what stopped a parser in words alone.
fn step_error(message: &str) -> GrammarError {
    let reason = reason_of(message);
    if reason.starts_with("NoExtension") {
        GrammarError::DeadEnd
    } else if is_panic(&reason) {
        GrammarError::Internal(reason)
    } else {
        GrammarError::TooComplex(reason)
    }
}
