//! Incremental decoding: tokens in, whole code points out.
//!
//! Bytes that may still become a code point are held back; bytes that cannot become U+FFFD, one for each maximal invalid
//! part. So the pushed texts and the finish, joined, are the lossy decoding of the joined bytes, wherever the
//! tokens were cut. At most three bytes are ever held.
//!
//! Fallback bytes (`<0xNN>`) follow the same rule: what is valid of them is kept, where Hugging Face replaces every byte of
//! an invalid run. Keeping text that was valid is what lets it be shown before the run ends.

use super::tokenizer::{Piece, Tokenizer};

/// Decodes one sequence.
#[derive(Clone, Debug, Default)]
pub struct IncrementalDecoder {
    held: Vec<u8>,
    leading_spaces_to_strip: usize,
}

impl IncrementalDecoder {
    /// Decodes tokens that follow others, as generated tokens follow their prompt: a leading space is text.
    pub fn continuation() -> Self {
        Self::default()
    }

    /// Decodes a text from its first token, where some tokenizers put a space that was not in the text.
    pub fn from_text_start(tokenizer: &Tokenizer) -> Self {
        Self { held: Vec::new(), leading_spaces_to_strip: tokenizer.leading_spaces_stripped() }
    }

    /// Takes one token and returns the text that it completes; often the token's own, sometimes none.
    pub fn push(&mut self, piece: &Piece) -> String {
        if piece.special {
            return String::new();
        }
        let mut bytes = piece.bytes.as_slice();
        while self.leading_spaces_to_strip > 0 && !bytes.is_empty() {
            match bytes.strip_prefix(b" ") {
                Some(rest) => {
                    bytes = rest;
                    self.leading_spaces_to_strip -= 1;
                }
                None => self.leading_spaces_to_strip = 0,
            }
        }
        self.held.extend_from_slice(bytes);
        self.release()
    }

    /// Ends the sequence: what is still held can no longer become a code point.
    pub fn finish(mut self) -> String {
        let text = self.release();
        if self.held.is_empty() { text } else { text + "\u{FFFD}" }
    }

    fn release(&mut self) -> String {
        let mut text = String::new();
        let mut released_bytes = 0;
        loop {
            let rest = &self.held[released_bytes..];
            let error = match str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.held.clear();
                    return text;
                }
                Err(error) => error,
            };
            let valid = &rest[..error.valid_up_to()];
            text.push_str(str::from_utf8(valid).expect("the error says that this much is valid"));
            released_bytes += valid.len();
            match error.error_len() {
                Some(invalid_bytes) => {
                    text.push('\u{FFFD}');
                    released_bytes += invalid_bytes;
                }
                None => {
                    self.held.drain(..released_bytes);
                    return text;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{byte_level_tokenizer, fallback_tokenizer};
    use super::super::tokenizer::SpecialTokens;
    use super::*;
    use crate::ids::TokenId;

    fn plain(bytes: &[u8]) -> Piece {
        Piece { bytes: bytes.to_vec(), special: false }
    }

    /// Checks every prefix of a token sequence against decoding it at once with Hugging Face's own decoder.
    fn check_prefixes(tokenizer: &Tokenizer, tokens: &[TokenId], reference: impl Fn(&[u32]) -> String) {
        let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        let mut decoder = IncrementalDecoder::from_text_start(tokenizer);
        let mut text = String::new();
        for (index, &token) in tokens.iter().enumerate() {
            text.push_str(&decoder.push(&tokenizer.piece(token)));
            let whole = text.clone() + &decoder.clone().finish();
            assert_eq!(whole, reference(&ids[..=index]), "prefix of {} tokens", index + 1);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_cut_anywhere_decode_as_if_at_once(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0xC0..=0xF8u8, 0x80..=0xBFu8], 0..40),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut decoder = IncrementalDecoder::continuation();
            let mut text = String::new();
            for window in cuts.windows(2) {
                text.push_str(&decoder.push(&plain(&bytes[window[0]..window[1]])));
                prop_assert!(decoder.held.len() <= 3);
            }
            text.push_str(&decoder.finish());
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn every_prefix_of_random_byte_level_tokens_matches_hugging_face(
            ids in prop::collection::vec(0u32..262, 0..24),
        ) {
            let tokenizer = byte_level_tokenizer();
            let tokens: Vec<TokenId> = ids.into_iter().map(TokenId).collect();
            check_prefixes(&tokenizer, &tokens, |ids| tokenizer.hugging_face_decode(ids));
        }

        #[test]
        fn every_split_of_a_text_into_its_bytes_shows_only_whole_code_points(text in "\\PC{0,12}") {
            let mut decoder = IncrementalDecoder::continuation();
            let mut shown = String::new();
            for (index, byte) in text.bytes().enumerate() {
                shown.push_str(&decoder.push(&plain(&[byte])));
                let whole = (0..=index + 1).rev().find(|&end| text.is_char_boundary(end)).unwrap();
                prop_assert_eq!(&shown, &text[..whole]);
            }
            prop_assert_eq!(decoder.finish(), "");
        }
    }

    #[test]
    fn valid_fallback_text_matches_hugging_face_at_every_whole_prefix() {
        let tokenizer = fallback_tokenizer();
        let tokens = tokenizer.encode("hello 日本 world", SpecialTokens::AsWritten).unwrap();
        let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        let mut decoder = IncrementalDecoder::from_text_start(&tokenizer);
        let mut text = String::new();
        for (index, &token) in tokens.iter().enumerate() {
            text.push_str(&decoder.push(&tokenizer.piece(token)));
            if decoder.held.is_empty() {
                assert_eq!(text, tokenizer.hugging_face_decode(&ids[..=index]));
            }
        }
        assert_eq!(text, "hello 日本 world");
    }

    #[test]
    fn special_tokens_between_the_bytes_of_a_code_point_leave_it_whole() {
        let mut decoder = IncrementalDecoder::continuation();
        assert_eq!(decoder.push(&plain(&[0xC3])), "");
        assert_eq!(decoder.push(&Piece { bytes: b"<|x|>".to_vec(), special: true }), "");
        assert_eq!(decoder.push(&plain(&[0xA9])), "é");
    }
}
