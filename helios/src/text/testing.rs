//! Small tokenizers for tests: byte-level ids below 256 are the byte itself.

use std::fmt::Write as _;

use super::tokenizer::Tokenizer;
use crate::ids::TokenId;

/// `<|im_end|>` of [`byte_level_tokenizer`].
pub(crate) const IM_END: TokenId = TokenId(260);
/// A vocabulary that holds every id of [`byte_level_tokenizer`], and some that it does not name.
pub(crate) const VOCABULARY: u32 = 270;

const INPUT_BYTES_MAX: usize = 1 << 20;

/// tokenizer.json of a byte-level BPE: 256 bytes, two merges, two ordinary and two special added tokens.
pub(crate) fn byte_level_json() -> String {
    let mut vocabulary = String::new();
    let mut next = 256;
    for byte in 0..=u8::MAX {
        let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = if printable {
            u32::from(byte)
        } else {
            next += 1;
            next - 1
        };
        let name = serde_json::to_string(&char::from_u32(code).unwrap().to_string()).unwrap();
        write!(vocabulary, "{name}:{byte},").unwrap();
    }
    let added: Vec<String> = [(258, "plain", false), (259, "<|im_start|>", true), (260, "<|im_end|>", true), (261, "ünï", false)]
        .iter()
        .map(|(id, content, special)| {
            format!(
                r#"{{"id":{id},"content":"{content}","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":{special}}}"#
            )
        })
        .collect();
    let byte_level = r#"{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}"#;
    format!(
        r#"{{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{}],"normalizer":null,"pre_tokenizer":{byte_level},"post_processor":null,"decoder":{byte_level},"model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{{{vocabulary}"he":256,"ll":257}},"merges":["h e","l l"]}}}}"#,
        added.join(",")
    )
}

pub(crate) fn byte_level_tokenizer() -> Tokenizer {
    Tokenizer::from_bytes(byte_level_json().as_bytes(), INPUT_BYTES_MAX).unwrap()
}

/// A SentencePiece-style BPE with byte fallback and a stripped leading space.
pub(crate) fn fallback_tokenizer() -> Tokenizer {
    let mut vocabulary = String::from(r#""<unk>":0,"▁":1"#);
    for byte in 0..=u8::MAX {
        write!(vocabulary, r#","<0x{byte:02X}>":{}"#, 2 + u32::from(byte)).unwrap();
    }
    for (index, letter) in ('a'..='z').enumerate() {
        write!(vocabulary, r#","{letter}":{}"#, 258 + index).unwrap();
    }
    let json = format!(
        r#"{{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":{{"type":"Sequence","normalizers":[{{"type":"Prepend","prepend":"▁"}},{{"type":"Replace","pattern":{{"String":" "}},"content":"▁"}}]}},"pre_tokenizer":null,"post_processor":null,"decoder":{{"type":"Sequence","decoders":[{{"type":"Replace","pattern":{{"String":"▁"}},"content":" "}},{{"type":"ByteFallback"}},{{"type":"Fuse"}},{{"type":"Strip","content":" ","start":1,"stop":0}}]}},"model":{{"type":"BPE","dropout":null,"unk_token":"<unk>","continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":true,"byte_fallback":true,"ignore_merges":false,"vocab":{{{vocabulary}}},"merges":[]}}}}"#
    );
    Tokenizer::from_bytes(json.as_bytes(), INPUT_BYTES_MAX).unwrap()
}
