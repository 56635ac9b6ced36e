//! The vocabulary as llguidance walks it: each token's bytes in a trie, special tokens apart from text.

use std::sync::Arc;

use llguidance::toktrie::{ApproximateTokEnv, INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie};

use crate::ids::TokenId;
use crate::text::Tokenizer;

/// The trie holds no longer token. Known vocabularies have none either; a longer one would never be allowed.
const TOKEN_BYTES_MAX: usize = 1000;

/// What constraints need to know of a core's tokens.
#[derive(Clone)]
pub struct Vocabulary {
    pub(super) environment: TokEnv,
    /// Bit `t % 32` of word `t / 32`: the tokenizer names token `t`.
    pub(super) named: Arc<[u32]>,
    pub(super) ends: Arc<[u32]>,
    /// Names and ids of the special tokens that do not end a sequence, longest name first.
    pub(super) specials: Arc<[(String, u32)]>,
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary").field("tokens", &self.tokens()).finish_non_exhaustive()
    }
}

impl Vocabulary {
    /// Reads the bytes of every token. This takes milliseconds: it is done for the first request that needs it.
    ///
    /// `tokens` is the core's vocabulary, which may be larger than the tokenizer's.
    pub fn new(tokenizer: &Tokenizer, ends: &[TokenId], tokens: u32) -> Self {
        let mut words = Vec::with_capacity(tokens as usize);
        let mut named = vec![0; tokens.div_ceil(32) as usize];
        let mut specials = Vec::new();
        for token in 0..tokens {
            let piece = tokenizer.piece(TokenId(token));
            let is_end = ends.contains(&TokenId(token));
            if piece.bytes.is_empty() || piece.bytes.len() > TOKEN_BYTES_MAX {
                words.push(Vec::new());
                continue;
            }
            set_bit(&mut named, token);
            if piece.special || is_end {
                // The marker is a byte that no text has, so that text never matches a special token's name.
                words.push([&[TokTrie::SPECIAL_TOKEN_MARKER], piece.bytes.as_slice()].concat());
                if !is_end {
                    specials.push((String::from_utf8_lossy(&piece.bytes).into_owned(), token));
                }
            } else {
                words.push(piece.bytes);
            }
        }
        specials.sort_by_key(|(name, token)| (std::cmp::Reverse(name.len()), *token));
        let ends: Vec<u32> = ends.iter().map(|token| token.0).filter(|&token| token < tokens).collect();
        let mut trie = TokTrie::from(&TokRxInfo::new(tokens, INVALID_TOKEN), &words);
        if !ends.is_empty() {
            trie = trie.with_eos_tokens(&ends);
        }
        Self {
            environment: Arc::new(ApproximateTokEnv::new(trie)),
            named: named.into(),
            ends: ends.into(),
            specials: specials.into(),
        }
    }

    /// Words of a mask.
    pub fn mask_words(&self) -> usize {
        self.named.len()
    }

    fn tokens(&self) -> usize {
        self.environment.tok_trie().vocab_size()
    }

    pub(super) fn is_end(&self, token: TokenId) -> bool {
        self.ends.contains(&token.0)
    }

    pub(super) fn is_named(&self, token: TokenId) -> bool {
        self.named.get(token.0 as usize / 32).is_some_and(|word| word >> (token.0 % 32) & 1 == 1)
    }
}

pub(super) fn set_bit(mask: &mut [u32], token: u32) {
    mask[token as usize / 32] |= 1 << (token % 32);
}

pub(super) fn clear_bit(mask: &mut [u32], token: u32) {
    mask[token as usize / 32] &= !(1 << (token % 32));
}
