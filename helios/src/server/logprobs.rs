//! Log probabilities in the two shapes of the OpenAI API.

use serde_json::{Map, Value, json};

use crate::ids::TokenId;
use crate::runtime::engine::TokenLogprobs;
use crate::text::Tokenizer;

/// One generated token, kept until the text that it belongs to is released.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TokenReport {
    pub token: TokenId,
    pub logprobs: TokenLogprobs,
    /// Where the token's text starts, in code points from the start of the generated text.
    pub start: usize,
    /// Code points of text that the token completed.
    pub length: usize,
}

/// Chat's `logprobs`: `{"content": [...], "refusal": null}`.
pub(super) fn chat(tokenizer: &Tokenizer, reports: &[TokenReport]) -> Value {
    json!({"content": entries(tokenizer, reports), "refusal": null})
}

/// One entry a token, as chat and responses have them.
pub(super) fn entries(tokenizer: &Tokenizer, reports: &[TokenReport]) -> Vec<Value> {
    let entry = |token: TokenId, logprob: f32| {
        let bytes = tokenizer.piece(token).bytes;
        json!({"token": String::from_utf8_lossy(&bytes), "logprob": finite(logprob), "bytes": bytes})
    };
    reports
        .iter()
        .map(|report| {
            let mut value = entry(report.token, report.logprobs.sampled);
            let alternatives = &report.logprobs.alternatives;
            value["top_logprobs"] =
                alternatives.iter().map(|&(token, logprob)| entry(token, logprob)).collect();
            value
        })
        .collect()
}

/// Completions' `logprobs`: parallel lists.
pub(super) fn completions(tokenizer: &Tokenizer, reports: &[TokenReport]) -> Value {
    let name = |token: TokenId| token_name(&tokenizer.piece(token).bytes);
    let top = |report: &TokenReport| -> Value {
        let mut entries = Map::new();
        entries.insert(name(report.token), finite(report.logprobs.sampled));
        for &(token, logprob) in &report.logprobs.alternatives {
            entries.insert(name(token), finite(logprob));
        }
        entries.into()
    };
    json!({
        "tokens": reports.iter().map(|report| name(report.token)).collect::<Vec<String>>(),
        "token_logprobs": reports.iter().map(|report| finite(report.logprobs.sampled)).collect::<Vec<Value>>(),
        "top_logprobs": reports.iter().map(top).collect::<Vec<Value>>(),
        "text_offset": reports.iter().map(|report| report.start).collect::<Vec<usize>>(),
    })
}

/// A token's text; bytes that are no text by themselves are spelled out, because names are keys and must differ.
fn token_name(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |name, byte| format!("{name}\\x{byte:02x}")),
    }
}

/// JSON has no infinity: a token that cannot be sampled reports OpenAI's own floor.
fn finite(logprob: f32) -> Value {
    const FLOOR: f32 = -9999.0;
    json!(logprob.max(FLOOR))
}
