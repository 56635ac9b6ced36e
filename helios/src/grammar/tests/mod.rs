//! Random walks under masks, held to what independent readers make of the text.

mod envelope;
mod limits;
mod refused;
mod schemas;
mod texts;
mod walk;

use std::sync::OnceLock;

use super::{Constraint, Envelope, GrammarCompiler, GrammarError, GrammarLimits, GrammarSource, Vocabulary};
use crate::ids::TokenId;
use crate::text::Tokenizer;
use crate::text::testing::{IM_END, byte_level_json};

/// More than the tokenizer names, as cores have for padding.
const TOKENS: u32 = 300;
/// A second token that ends a sequence.
const SECOND_END: TokenId = TokenId(259);
const THINK: &str = "<|think|>";
const THINK_END: &str = "<|/think|>";

/// Tokens of several bytes that cross the borders of a grammar's parts, and special tokens.
const ADDED: [(&str, bool); 13] = [
    ("{\"", false),
    ("\":", false),
    ("\",", false),
    ("\"}", false),
    ("[[", false),
    ("ink>\n", false),
    ("k>{", false),
    ("true", false),
    ("12", false),
    ("é", false),
    (THINK, true),
    (THINK_END, true),
    ("<|call|>", true),
];

fn tokenizer() -> Tokenizer {
    let mut json: serde_json::Value = serde_json::from_str(&byte_level_json()).unwrap();
    let tokens = json["added_tokens"].as_array_mut().unwrap();
    for (index, (content, special)) in ADDED.iter().enumerate() {
        tokens.push(serde_json::json!({
            "id": 262 + index, "content": content, "special": special,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        }));
    }
    Tokenizer::from_bytes(json.to_string().as_bytes(), 1 << 20).unwrap()
}

struct Bench {
    tokenizer: Tokenizer,
    compiler: GrammarCompiler,
}

fn bench() -> &'static Bench {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    BENCH.get_or_init(|| {
        let tokenizer = tokenizer();
        let vocabulary = Vocabulary::new(&tokenizer, &[IM_END, SECOND_END], TOKENS);
        let compiler = GrammarCompiler::new(vocabulary, GrammarLimits::default()).unwrap();
        Bench { tokenizer, compiler }
    })
}

fn compile(source: &GrammarSource) -> Result<Constraint, GrammarError> {
    bench().compiler.compile(source, &Envelope::default())
}

/// The id of a token that the tokenizer names so.
fn token(name: &str) -> TokenId {
    let tokens = bench().tokenizer.encode(name, crate::text::SpecialTokens::AsWritten).unwrap();
    assert_eq!(tokens.len(), 1, "{name}");
    tokens[0]
}
