//! Hugging Face tokenizers: text to token ids, and each token's own bytes.
//!
//! A token's bytes do not depend on its neighbours, so that a sequence can be decoded one token at a time. Decoders for which
//! that is not so are refused when the tokenizer is loaded.

use std::sync::LazyLock;

use serde_json::Value;
use tokenizers::{Encoding, PostProcessorWrapper};

use super::decode::IncrementalDecoder;
use super::endpoints;
use super::segments::{Segments, Spans, tokens};
use crate::ids::TokenId;

/// Whether the tokenizer's post-processor may add tokens such as a beginning-of-text token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    Add,
    /// The text names its special tokens itself, as a rendered template does.
    AsWritten,
}

/// Whether parts of a text that were tokenized lately are known again. That takes less time, which others could notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recall {
    Allowed,
    Forbidden,
}

/// A text's tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    pub tokens: Vec<TokenId>,
    /// The marks that fall between two tokens, in tokens: ascending, distinct, and strictly inside the sequence.
    pub endpoints: Vec<u32>,
}

/// What one token stands for in text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Not always whole code points. Empty for an id that the tokenizer does not name.
    pub bytes: Vec<u8>,
    /// Special tokens are not shown in text.
    pub special: bool,
}

/// Why a tokenizer cannot be used, or why it refuses a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    #[error("tokenizer.json does not parse: {0}")]
    Parse(String),
    #[error(
        "decoder {0} is not supported; supported are ByteLevel, Metaspace, and sequences of Replace, ByteFallback, Fuse and Strip"
    )]
    UnsupportedDecoder(String),
    #[error("the text has {bytes} bytes, more than the {bytes_max} that can fit the context; shorten it")]
    InputTooLong { bytes: usize, bytes_max: usize },
    #[error("the text cannot be tokenized: {0}")]
    Encode(String),
}

/// A core's tokenizer.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    style: PieceStyle,
    /// Of texts that name their special tokens themselves.
    segments: Option<Segments>,
    input_bytes_max: usize,
}

impl Tokenizer {
    /// Parses tokenizer.json. Texts longer than `input_bytes_max` bytes will be refused.
    ///
    /// # Errors
    /// [`TokenizerError::Parse`], or [`TokenizerError::UnsupportedDecoder`] where a token has no bytes of its own.
    pub fn from_bytes(json: &[u8], input_bytes_max: usize) -> Result<Self, TokenizerError> {
        let parse = |error: tokenizers::Error| TokenizerError::Parse(error.to_string());
        let mut inner = tokenizers::Tokenizer::from_bytes(json).map_err(parse)?;
        // A prompt is served whole or refused; training-time truncation and padding have no place here.
        inner.with_padding(None).with_truncation(None).map_err(parse)?;
        let processor = inner.get_post_processor().map(untrimmed).transpose();
        inner.with_post_processor(processor.map_err(|error| TokenizerError::Parse(error.to_string()))?);
        let decoder = serde_json::to_value(inner.get_decoder())
            .map_err(|error| TokenizerError::Parse(error.to_string()))?;
        let style = PieceStyle::of(&decoder)?;
        let segments = (style == PieceStyle::ByteLevel).then(|| Segments::of(&inner)).flatten();
        Ok(Self { inner, style, segments, input_bytes_max })
    }

    /// The text's tokens.
    ///
    /// # Errors
    /// [`TokenizerError::InputTooLong`] or [`TokenizerError::Encode`].
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<TokenId>, TokenizerError> {
        self.check_length(text)?;
        if let Some(segments) = self.segments(special, Recall::Allowed) {
            return Ok(segments.encode(text, |segment| self.encoding(segment, special))?.tokens);
        }
        // Where a text stays whole, spans would be made for nothing.
        let encoding = self.inner.encode_fast(text, special == SpecialTokens::Add).map_err(refused)?;
        Ok(tokens(&encoding).collect())
    }

    /// The text's tokens, and the cuts between them at `marks`, which are bytes of the text.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_marked(
        &self,
        text: &str,
        special: SpecialTokens,
        recall: Recall,
        marks: &[usize],
    ) -> Result<Encoded, TokenizerError> {
        self.check_length(text)?;
        let encode = |text: &str| self.encoding(text, special);
        let Spans { tokens, offsets } = match self.segments(special, recall) {
            Some(segments) => segments.encode(text, encode)?,
            None => Spans::of(&encode(text)?),
        };
        Ok(Encoded { tokens, endpoints: endpoints::cuts(&offsets, marks) })
    }

    /// What a token stands for.
    pub fn piece(&self, token: TokenId) -> Piece {
        let Some(name) = self.inner.id_to_token(token.0) else {
            return Piece::default();
        };
        let special = self.inner.get_added_vocabulary().is_special_token(&name);
        Piece { bytes: self.style.bytes_of(&name), special }
    }

    /// The text of a whole sequence; special tokens are left out.
    pub fn decode(&self, tokens: &[TokenId]) -> String {
        let mut decoder = IncrementalDecoder::from_text_start(self);
        let mut text: String = tokens.iter().map(|&token| decoder.push(&self.piece(token))).collect();
        text.push_str(&decoder.finish());
        text
    }

    fn check_length(&self, text: &str) -> Result<(), TokenizerError> {
        let (bytes, bytes_max) = (text.len(), self.input_bytes_max);
        if bytes > bytes_max { Err(TokenizerError::InputTooLong { bytes, bytes_max }) } else { Ok(()) }
    }

    fn encoding(&self, text: &str, special: SpecialTokens) -> Result<Encoding, TokenizerError> {
        self.inner.encode(text, special == SpecialTokens::Add).map_err(refused)
    }

    /// What cuts a text, if it may be cut and its parts recognized.
    fn segments(&self, special: SpecialTokens, recall: Recall) -> Option<&Segments> {
        let may_be_cut = special == SpecialTokens::AsWritten && recall == Recall::Allowed;
        self.segments.as_ref().filter(|_| may_be_cut)
    }

    /// Hugging Face's own decoding, to compare with.
    #[cfg(test)]
    pub(super) fn hugging_face_decode(&self, ids: &[u32]) -> String {
        self.inner.decode(ids, true).unwrap()
    }

    /// Spaces that the decoder strips from the start of a whole text.
    pub(super) fn leading_spaces_stripped(&self) -> usize {
        match &self.style {
            PieceStyle::ByteLevel => 0,
            PieceStyle::ByteFallback { leading_spaces_stripped, .. } => *leading_spaces_stripped,
        }
    }
}

fn refused(error: tokenizers::Error) -> TokenizerError {
    TokenizerError::Encode(error.to_string())
}

/// The post-processor without its cutting of whitespace from tokens' spans, which changes no token.
fn untrimmed(processor: &PostProcessorWrapper) -> Result<PostProcessorWrapper, serde_json::Error> {
    fn leave_whitespace(value: &mut Value) {
        if let Some(trim) = value.get_mut("trim_offsets") {
            *trim = false.into();
        }
        for inner in value.get_mut("processors").and_then(Value::as_array_mut).into_iter().flatten() {
            leave_whitespace(inner);
        }
    }
    let mut value = serde_json::to_value(processor)?;
    leave_whitespace(&mut value);
    serde_json::from_value(value)
}

/// How token names spell bytes.
#[derive(Debug, PartialEq, Eq)]
enum PieceStyle {
    /// Every byte is one printable character (GPT-2).
    ByteLevel,
    /// Text with replacements, and `<0xNN>` for a byte (SentencePiece).
    ByteFallback { replacements: Vec<(String, String)>, byte_tokens: bool, leading_spaces_stripped: usize },
}

impl PieceStyle {
    fn of(decoder: &Value) -> Result<Self, TokenizerError> {
        let single = [decoder.clone()];
        let steps = match decoder["decoders"].as_array() {
            Some(steps) => steps.as_slice(),
            None => &single,
        };
        let mut replacements = Vec::new();
        let mut byte_tokens = false;
        let mut leading_spaces_stripped = 0;
        for step in steps {
            match step["type"].as_str() {
                Some("ByteLevel") if steps.len() == 1 => return Ok(Self::ByteLevel),
                Some("Replace") if step["pattern"]["String"].is_string() => {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    replacements.push((text(&step["pattern"]["String"]), text(&step["content"])));
                }
                Some("Metaspace") => {
                    let mark = step["replacement"].as_str().unwrap_or("\u{2581}").to_owned();
                    replacements.push((mark, " ".to_owned()));
                    leading_spaces_stripped = usize::from(step["prepend_scheme"] != "never");
                }
                Some("ByteFallback") => byte_tokens = true,
                Some("Fuse") => {}
                Some("Strip") if step["content"] == " " && step["stop"] == 0 => {
                    leading_spaces_stripped = step["start"].as_u64().unwrap_or(0) as usize;
                }
                _ => return Err(TokenizerError::UnsupportedDecoder(step.to_string())),
            }
        }
        Ok(Self::ByteFallback { replacements, byte_tokens, leading_spaces_stripped })
    }

    fn bytes_of(&self, name: &str) -> Vec<u8> {
        match self {
            // A name with a character outside the alphabet is an added token, which stands for itself.
            Self::ByteLevel => {
                name.chars().map(byte_of).collect::<Option<Vec<u8>>>().unwrap_or_else(|| name.into())
            }
            Self::ByteFallback { replacements, byte_tokens, .. } => {
                if let Some(byte) = fallback_byte(name).filter(|_| *byte_tokens) {
                    return vec![byte];
                }
                let replaced = replacements
                    .iter()
                    .fold(name.to_owned(), |text, (pattern, content)| text.replace(pattern, content));
                replaced.into_bytes()
            }
        }
    }
}

/// The byte that `<0xNN>` names.
fn fallback_byte(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// The byte that a character of the byte-level alphabet stands for.
fn byte_of(character: char) -> Option<u8> {
    static BYTES: LazyLock<[Option<u8>; 512]> = LazyLock::new(|| {
        let mut bytes = [None; 512];
        let mut next = 256;
        for byte in 0..=u8::MAX {
            let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
            let code = if printable {
                usize::from(byte)
            } else {
                next += 1;
                next - 1
            };
            bytes[code] = Some(byte);
        }
        bytes
    });
    BYTES.get(character as usize).copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{byte_level_tokenizer, fallback_tokenizer};
    use super::*;

    #[test]
    fn what_may_not_be_recognized_is_not_remembered() {
        let (tokenizer, text) = (byte_level_tokenizer(), format!("{}<|im_end|>b", "hello ".repeat(60)));
        let encode = |recall| tokenizer.encode_marked(&text, SpecialTokens::AsWritten, recall, &[3]).unwrap();
        let alone = encode(Recall::Forbidden);
        let segments = tokenizer.segments.as_ref().unwrap();
        assert_eq!(segments.remembered(), 0);
        assert_eq!(encode(Recall::Allowed), alone);
        assert_eq!(segments.remembered(), 1);
    }

    #[test]
    fn encodes_and_decodes_what_hugging_face_does() {
        for tokenizer in [byte_level_tokenizer(), fallback_tokenizer()] {
            for text in ["hello world", "  two spaces", "naïve 日本語 🦀\n\ttab", "", "a<|im_end|>b"] {
                let tokens = tokenizer.encode(text, SpecialTokens::AsWritten).unwrap();
                let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
                assert_eq!(
                    tokenizer.decode(&tokens),
                    tokenizer.inner.decode(&ids, true).unwrap(),
                    "{text:?}"
                );
            }
        }
    }

    #[test]
    fn special_tokens_are_named_as_such_and_unknown_ids_are_empty() {
        let tokenizer = byte_level_tokenizer();
        let tokens = tokenizer.encode("<|im_start|>h", SpecialTokens::AsWritten).unwrap();
        assert_eq!(tokens.len(), 2);
        assert_eq!(tokenizer.piece(tokens[0]), Piece { bytes: b"<|im_start|>".to_vec(), special: true });
        assert_eq!(tokenizer.piece(tokens[1]), Piece { bytes: b"h".to_vec(), special: false });
        assert_eq!(tokenizer.piece(TokenId(60_000)), Piece::default());
    }

    #[test]
    fn marks_become_cuts_only_between_tokens() {
        let cuts = |tokenizer: Tokenizer, text: &str| {
            let marks: Vec<usize> = (0..=text.len()).collect();
            tokenizer
                .encode_marked(text, SpecialTokens::AsWritten, Recall::Allowed, &marks)
                .unwrap()
                .endpoints
        };
        // "he" is one token, and the four bytes of the crab share its span.
        assert_eq!(cuts(byte_level_tokenizer(), "xhe🦀y<|im_end|>\nz"), [1, 2, 6, 7, 8, 9]);
        // The space that is put before the text has the first letter's span.
        assert_eq!(cuts(fallback_tokenizer(), "ab 🦀d"), [2, 3, 4, 8]);
    }

    #[test]
    fn a_text_over_the_bound_is_refused_before_any_work() {
        let json = super::super::testing::byte_level_json();
        let tokenizer = Tokenizer::from_bytes(json.as_bytes(), 4).unwrap();
        assert_eq!(tokenizer.encode("abcd", SpecialTokens::Add).unwrap().len(), 4);
        assert_eq!(
            tokenizer.encode("abcde", SpecialTokens::Add).unwrap_err(),
            TokenizerError::InputTooLong { bytes: 5, bytes_max: 4 }
        );
    }

    #[test]
    fn broken_json_and_unknown_decoders_are_typed_errors() {
        assert!(matches!(Tokenizer::from_bytes(b"{", 1), Err(TokenizerError::Parse(_))));
        let json = super::super::testing::byte_level_json().replace(
            r#""decoder":{"type":"ByteLevel""#,
            r#""decoder":{"type":"WordPiece","prefix":"x","cleanup":true"#,
        );
        assert!(matches!(
            Tokenizer::from_bytes(json.as_bytes(), 1),
            Err(TokenizerError::UnsupportedDecoder(name)) if name.contains("WordPiece")
        ));
    }
}
