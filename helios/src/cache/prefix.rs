//! What names a prefix: a chain of digests over fixed blocks of tokens, independent of how pages are laid out.
//!
//! Two histories have equal names at a position exactly when everything that the model's state depends on up to there is equal:
//! the tokens, the root (which core, and whose cache) and the conditions that entered before that position. Names never
//! depend on page size, chunking or what came from the cache.

use std::ops::Range;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::ids::{Digest, TokenId};

/// Tokens of a hash block.
pub const BLOCK_TOKENS: u32 = 64;

/// An input beside the tokens that the state depends on from `position` on, such as an image's features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    pub position: u32,
    pub identity: Digest,
}

/// The name of a history's first `consumed` tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixName {
    pub consumed: u32,
    /// The chain's digest at the last complete block.
    pub block: Digest,
    /// Covers the whole prefix.
    pub digest: Digest,
}

/// A history that can be read token by token.
pub trait History {
    fn token(&self, position: u32) -> TokenId;
}

impl History for [TokenId] {
    fn token(&self, position: u32) -> TokenId {
        self[position as usize]
    }
}

/// The digests of a history's complete blocks, as far as they were asked for.
#[derive(Clone, Debug)]
pub struct PrefixChain {
    /// In order of position.
    conditions: Arc<[Condition]>,
    /// Digest i covers the first i blocks; digest 0 is the root.
    blocks: Vec<Digest>,
}

impl PrefixChain {
    /// `root` tells apart histories that must never share state, and `conditions` are in order of position.
    pub fn new(root: Digest, conditions: Arc<[Condition]>) -> Self {
        Self { conditions, blocks: vec![root] }
    }

    /// Covers the complete blocks of a history's first `tokens` tokens.
    pub fn extend(&mut self, tokens: u32, history: &(impl History + ?Sized)) {
        for block in self.blocks.len() as u32..=tokens / BLOCK_TOKENS {
            let range = (block - 1) * BLOCK_TOKENS..block * BLOCK_TOKENS;
            let previous = self.blocks[block as usize - 1];
            self.blocks.push(self.link(&previous, range, history));
        }
    }

    /// The name of the first `consumed` tokens, whose complete blocks are covered.
    pub fn name(&self, consumed: u32, history: &(impl History + ?Sized)) -> PrefixName {
        let block = self.block(consumed / BLOCK_TOKENS);
        let tail = consumed / BLOCK_TOKENS * BLOCK_TOKENS..consumed;
        PrefixName { consumed, block, digest: self.link(&block, tail, history) }
    }

    /// The digest of the first `blocks` blocks, which are covered.
    pub fn block(&self, blocks: u32) -> Digest {
        self.blocks[blocks as usize]
    }

    fn link(&self, previous: &Digest, range: Range<u32>, history: &(impl History + ?Sized)) -> Digest {
        let mut hasher = Sha256::new();
        hasher.update(previous.0);
        // The count keeps tokens and conditions apart.
        hasher.update((range.end - range.start).to_le_bytes());
        for position in range.clone() {
            hasher.update(history.token(position).0.to_le_bytes());
        }
        for condition in self.conditions.iter().filter(|condition| range.contains(&condition.position)) {
            hasher.update(condition.position.to_le_bytes());
            hasher.update(condition.identity.0);
        }
        Digest(hasher.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(root: u8, conditions: &[Condition], tokens: &[TokenId], consumed: u32) -> Digest {
        let mut chain = PrefixChain::new(Digest([root; 32]), conditions.into());
        chain.extend(consumed, tokens);
        chain.name(consumed, tokens).digest
    }

    proptest! {
        #[test]
        fn names_are_equal_exactly_when_prefixes_are(
            left in prop::collection::vec((0..2u32).prop_map(TokenId), 1..200),
            right in prop::collection::vec((0..2u32).prop_map(TokenId), 1..200),
            shared in 0..200usize,
            cut in any::<prop::sample::Index>(),
        ) {
            let right: Vec<TokenId> = left.iter().take(shared).chain(&right).copied().collect();
            let cut = cut.index(left.len().min(right.len()) + 1);
            let is_equal = left[..cut] == right[..cut];
            prop_assert_eq!(name(0, &[], &left, cut as u32) == name(0, &[], &right, cut as u32), is_equal);
        }
    }

    #[test]
    fn a_root_changes_every_name_and_a_condition_those_behind_it() {
        let tokens: Vec<TokenId> = (0..150).map(TokenId).collect();
        let condition = |position| Condition { position, identity: Digest([7; 32]) };
        for consumed in [1, 63, 64, 65, 100, 128, 150] {
            let plain = name(0, &[], &tokens, consumed);
            assert_ne!(name(1, &[], &tokens, consumed), plain);
            let image = name(0, &[condition(70)], &tokens, consumed);
            assert_eq!(image == plain, consumed <= 70);
            assert_ne!(name(0, &[condition(0)], &tokens, consumed), plain);
        }
        assert_ne!(name(0, &[condition(70)], &tokens, 100), name(0, &[condition(71)], &tokens, 100));
    }

    #[test]
    fn a_chain_grows_with_its_history() {
        let tokens: Vec<TokenId> = (0..300).map(TokenId).collect();
        let mut chain = PrefixChain::new(Digest([0; 32]), Arc::from([]));
        chain.extend(70, &tokens[..70]);
        chain.extend(300, tokens.as_slice());
        assert_eq!(chain.name(300, tokens.as_slice()).digest, name(0, &[], &tokens, 300));
    }
}
