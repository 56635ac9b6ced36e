//! Answers sampled uniformly among what the masks allow.

use super::super::{Constraint, MaskState};
use super::{SECOND_END, TOKENS, bench};
use crate::ids::TokenId;
use crate::sim::random::Random;
use crate::text::testing::IM_END;

/// Tokens after which a walk prefers what closes.
const FREE_TOKENS: usize = 40;
/// Tokens within which every walk must end: closing takes a few tokens for each level that is open, and what a schema asks for yet.
const TOKENS_MAX: usize = 2000;
const CLOSERS: [&[u8]; 7] = [b"\"}", b"\"", b"}", b"]", b")", b":", b"0"];

/// Walks from the start to an end token, and returns the tokens before it.
pub(super) fn walk(mut constraint: Constraint, seed: u64) -> Vec<TokenId> {
    let mut random = Random::new(seed);
    let mut mask = vec![u32::MAX; constraint.mask_words()];
    let mut tokens = Vec::new();
    while tokens.len() < TOKENS_MAX {
        let state = constraint.mask(&mut mask).unwrap_or_else(|error| {
            panic!("seed {seed}: {error} after {:?}", bench().tokenizer.decode(&tokens))
        });
        let allowed = allowed(&mask);
        check_mask(&allowed, state);
        let ends = tokens.len() >= FREE_TOKENS || random.chance(20);
        let token = if state == MaskState::Complete || state == MaskState::Accepting && ends {
            *random.pick(&[IM_END, SECOND_END])
        } else {
            pick(&allowed, &mut random, tokens.len())
        };
        constraint.accept(token).unwrap();
        if token == IM_END || token == SECOND_END {
            assert!(constraint.is_stopped());
            assert!(constraint.accept(token).is_err(), "nothing follows the end");
            return tokens;
        }
        tokens.push(token);
    }
    panic!("seed {seed}: no end within {TOKENS_MAX} tokens: {:?}", bench().tokenizer.decode(&tokens));
}

/// The ids that a mask allows, in rising order.
pub(super) fn allowed(mask: &[u32]) -> Vec<TokenId> {
    let bits =
        (0..mask.len() as u32 * 32).filter(|token| mask[*token as usize / 32] >> (token % 32) & 1 == 1);
    bits.map(TokenId).collect()
}

fn check_mask(allowed: &[TokenId], state: MaskState) {
    let ends = allowed.iter().filter(|token| **token == IM_END || **token == SECOND_END).count();
    assert_eq!(
        ends,
        if state == MaskState::Open { 0 } else { 2 },
        "ends are allowed where the grammar accepts"
    );
    assert_eq!(allowed.len() > ends, state != MaskState::Complete);
    for &token in allowed {
        assert!(token.0 < TOKENS, "{token} is beyond the core's vocabulary");
        assert!(!bench().tokenizer.piece(token).bytes.is_empty(), "{token} has no name");
    }
}

fn pick(allowed: &[TokenId], random: &mut Random, length: usize) -> TokenId {
    if length >= FREE_TOKENS {
        let piece = |token: &TokenId| bench().tokenizer.piece(*token).bytes;
        let closer = CLOSERS.iter().find_map(|closer| allowed.iter().find(|token| piece(token) == *closer));
        // Not always: what closes one part may be a step of a circle in another.
        if let Some(&closer) = closer.filter(|_| random.chance(80)) {
            return closer;
        }
    }
    let tokens: Vec<TokenId> =
        allowed.iter().copied().filter(|&token| token != IM_END && token != SECOND_END).collect();
    *random.pick(&tokens)
}

/// The text of a walk.
pub(super) fn walk_text(constraint: &Constraint, seed: u64) -> String {
    bench().tokenizer.decode(&walk(constraint.clone(), seed))
}
