//! Texts in segments whose tokens do not depend on each other, and a bounded memory of what segments became.
//!
//! An agent sends its whole conversation with every turn, and all but the end of it was tokenized for the turn before. Text is
//! cut behind added tokens that are taken out of it before anything else happens: a byte-level tokenizer looks from neither
//! side of these to the other. Where a tokenizer is of another kind, or these tokens take neighbours with them, there are no
//! segments. A request whose prefix cache is its own (`cache_salt`) is not recognized here either.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::{AddedToken, Encoding};

use crate::ids::TokenId;

/// A segment ends behind the first added token after so many bytes.
const SEGMENT_BYTES_MIN: usize = 256;
/// Of texts and their tokens.
const MEMORY_BYTES_MAX: usize = 32 << 20;
/// What an entry takes beside its text and tokens.
const ENTRY_BYTES: usize = 128;

/// A text's tokens and the byte span of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spans {
    pub tokens: Vec<TokenId>,
    pub offsets: Vec<(usize, usize)>,
}

impl Spans {
    /// Those of a whole text.
    pub fn of(encoding: &Encoding) -> Self {
        Self { tokens: tokens(encoding).collect(), offsets: encoding.get_offsets().to_vec() }
    }
}

/// An encoding's tokens.
pub(super) fn tokens(encoding: &Encoding) -> impl Iterator<Item = TokenId> {
    encoding.get_ids().iter().copied().map(TokenId)
}

/// Cuts texts, and remembers segments. Shared by threads.
#[derive(Debug)]
pub(super) struct Segments {
    cuts: AhoCorasick,
    memory: Mutex<Memory>,
}

impl Segments {
    /// For a byte-level tokenizer, unless it has no added tokens to cut behind, or some that take whitespace or look at words.
    pub fn of(tokenizer: &tokenizers::Tokenizer) -> Option<Self> {
        let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let found_first: Vec<&AddedToken> = added.values().filter(|token| !token.normalized).collect();
        let is_plain = |token: &&AddedToken| !token.lstrip && !token.rstrip && !token.single_word;
        if found_first.is_empty() || !found_first.iter().all(is_plain) {
            return None;
        }
        // The same matches as the tokenizer's own.
        let mut builder = AhoCorasick::builder();
        builder.match_kind(MatchKind::LeftmostLongest);
        let cuts = builder.build(found_first.iter().map(|token| token.content.as_str())).ok()?;
        Some(Self { cuts, memory: Mutex::new(Memory::new(MEMORY_BYTES_MAX)) })
    }

    /// A text's tokens, as `encode` gives them for the whole of it.
    pub fn encode<E>(&self, text: &str, encode: impl Fn(&str) -> Result<Encoding, E>) -> Result<Spans, E> {
        let mut spans = Spans::default();
        let mut start = 0;
        for end in self.cuts.find_iter(text).map(|found| found.end()) {
            if end - start < SEGMENT_BYTES_MIN {
                continue;
            }
            let segment = &text[start..end];
            let known = self.memory().find(segment);
            let known = match known {
                Some(known) => known,
                None => {
                    let made = Arc::new(Known::of(&encode(segment)?));
                    self.memory().add(segment, Arc::clone(&made));
                    made
                }
            };
            known.append(start, &mut spans);
            start = end;
        }
        // What follows the last cut is still being written.
        if start < text.len() {
            Known::of(&encode(&text[start..])?).append(start, &mut spans);
        }
        Ok(spans)
    }

    /// How many segments are remembered.
    #[cfg(test)]
    pub fn remembered(&self) -> usize {
        self.memory().entries.len()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("no thread panics while it holds the memory")
    }
}

/// What a segment became: its tokens, and where they start and end in it.
#[derive(Debug)]
struct Known {
    tokens: Box<[TokenId]>,
    offsets: Box<[(u32, u32)]>,
}

impl Known {
    fn of(encoding: &Encoding) -> Self {
        // A text is shorter than 4 GiB: what a prompt may have is bounded.
        let offset = |&(start, end): &(usize, usize)| (start as u32, end as u32);
        Self {
            tokens: tokens(encoding).collect(),
            offsets: encoding.get_offsets().iter().map(offset).collect(),
        }
    }

    fn append(&self, base: usize, spans: &mut Spans) {
        spans.tokens.extend_from_slice(&self.tokens);
        let place = |&(start, end): &(u32, u32)| (base + start as usize, base + end as usize);
        spans.offsets.extend(self.offsets.iter().map(place));
    }

    fn bytes(&self) -> usize {
        ENTRY_BYTES + size_of_val(&*self.tokens) + size_of_val(&*self.offsets)
    }
}

/// Segments that were seen lately, within a bound.
#[derive(Debug)]
struct Memory {
    entries: HashMap<Box<str>, Entry>,
    bytes: usize,
    bytes_max: usize,
    /// Counts uses, so that the least recent are known.
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    known: Arc<Known>,
    last_use: u64,
}

impl Memory {
    fn new(bytes_max: usize) -> Self {
        Self { entries: HashMap::new(), bytes: 0, bytes_max, uses: 0 }
    }

    fn find(&mut self, segment: &str) -> Option<Arc<Known>> {
        self.uses += 1;
        let entry = self.entries.get_mut(segment)?;
        entry.last_use = self.uses;
        Some(Arc::clone(&entry.known))
    }

    /// Keeps a segment, unless it alone is too much.
    fn add(&mut self, segment: &str, known: Arc<Known>) {
        let bytes = segment.len() + known.bytes();
        if bytes > self.bytes_max / 2 {
            return;
        }
        if self.bytes + bytes > self.bytes_max {
            self.forget_half();
        }
        self.uses += 1;
        let entry = Entry { known, last_use: self.uses };
        if self.entries.insert(segment.into(), entry).is_none() {
            self.bytes += bytes;
        }
    }

    /// Forgets what was not used for longest, until half of the bound is free.
    fn forget_half(&mut self) {
        let entries = self.entries.iter();
        let mut uses: Vec<(u64, usize)> =
            entries.map(|(text, entry)| (entry.last_use, text.len() + entry.known.bytes())).collect();
        uses.sort_unstable();
        let mut oldest = 0;
        for (last_use, bytes) in uses {
            if self.bytes <= self.bytes_max / 2 {
                break;
            }
            (self.bytes, oldest) = (self.bytes - bytes, last_use + 1);
        }
        self.entries.retain(|_, entry| entry.last_use >= oldest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{byte_level_json, byte_level_tokenizer};
    use super::*;
    use crate::text::{Recall, SpecialTokens};

    fn inner() -> tokenizers::Tokenizer {
        tokenizers::Tokenizer::from_bytes(byte_level_json().as_bytes()).unwrap()
    }

    #[test]
    fn a_segment_that_was_seen_is_not_tokenized_again() {
        let (tokenizer, long) = (inner(), "hello world ".repeat(40));
        let segments = Segments::of(&tokenizer).unwrap();
        let calls = std::cell::RefCell::new(Vec::new());
        let encode = |text: &str| {
            calls.borrow_mut().push(text.to_owned());
            tokenizer.encode(text, false)
        };
        let (first, end) = (format!("{long}<|im_end|>"), "<|im_start|>hell");
        segments.encode(&format!("{first}{end}"), encode).unwrap();
        assert_eq!(calls.take(), [&*first, end]);
        let second = format!("<|im_start|>{long}<|im_end|>");
        let text = format!("{first}{second}");
        let found = segments.encode(&text, encode).unwrap();
        assert_eq!(calls.take(), [&*second]);
        assert_eq!(found, Spans::of(&tokenizer.encode(&*text, false).unwrap()));
        // Short ones go together.
        segments.encode("a<|im_end|>b<|im_end|>c", encode).unwrap();
        assert_eq!(calls.take(), ["a<|im_end|>b<|im_end|>c"]);
    }

    #[test]
    fn tokens_that_take_their_neighbours_with_them_leave_no_segments() {
        assert!(Segments::of(&inner()).is_some());
        for taken in ["single_word", "lstrip", "rstrip"] {
            let json =
                byte_level_json().replacen(&format!("\"{taken}\":false"), &format!("\"{taken}\":true"), 1);
            let tokenizer = tokenizers::Tokenizer::from_bytes(json.as_bytes()).unwrap();
            assert!(Segments::of(&tokenizer).is_none(), "{taken}");
        }
    }

    #[test]
    fn the_memory_keeps_what_was_used_within_its_bound() {
        let known = |text: &str| Arc::new(Known::of(&inner().encode(text, false).unwrap()));
        let text = |index: usize| format!("{index:0>100}");
        let each = 100 + known(&text(0)).bytes();
        let mut memory = Memory::new(10 * each);
        for index in 0..100 {
            memory.add(&text(index), known(&text(index)));
            assert!(memory.find(&text(0)).is_some(), "it is used all the time");
            assert_eq!(memory.bytes, memory.entries.len() * each);
            assert!(memory.bytes <= memory.bytes_max);
        }
        assert!(memory.entries.len() >= 5);
        assert!(memory.find(&text(99)).is_some() && memory.find(&text(50)).is_none());
        memory.add(&"x".repeat(6 * each), known("x"));
        assert!(memory.find(&"x".repeat(6 * each)).is_none(), "it alone is more than half");
    }

    proptest! {
        #[test]
        fn segments_have_the_tokens_and_spans_of_the_whole(
            parts in prop::collection::vec((0..7_usize, 1..60_usize), 0..30),
            marks in prop::collection::vec(0..4000_usize, 0..8),
        ) {
            let words = ["hello ", "<|im_start|>", "<|im_end|>", "<|im_", "plain", "  \n", "n\u{e4}ünï日本"];
            let text: String = parts.iter().map(|&(word, count)| words[word].repeat(count)).collect();
            let (whole, segmented) = (inner(), byte_level_tokenizer());
            let whole = Spans::of(&whole.encode(&*text, false).unwrap());
            for _ in 0..2 {
                let encoded = segmented.encode_marked(&text, SpecialTokens::AsWritten, Recall::Allowed, &marks);
                let encoded = encoded.unwrap();
                prop_assert_eq!(&encoded.tokens, &whole.tokens);
                prop_assert_eq!(&encoded.endpoints, &super::super::endpoints::cuts(&whole.offsets, &marks));
            }
        }
    }
}
