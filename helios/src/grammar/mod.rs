//! Constraints on what may be generated: JSON Schema, regular expressions, grammars and lists of choices as masks over tokens.
//!
//! A [`GrammarCompiler`] turns a request's [`GrammarSource`] and [`Envelope`] into a [`Constraint`], whose state advances token by
//! token and whose masks have the layout of the contract's `VALUE_SOURCE_GRAMMAR_MASKS`. The parser underneath is llguidance. What
//! this room adds, and promises:
//!
//! - **Nothing is weakened.** A source is enforced as a whole or refused with an error that says where and why. Keywords, formats
//!   and shapes of JSON Schema that llguidance does not enforce, or enforces loosely, are refused or tightened in `schema`.
//! - **The end is the grammar's.** End-of-sequence tokens are allowed exactly where the answer is complete. Ids that the
//!   tokenizer does not name are never allowed.
//! - **Only the answer is constrained.** Reasoning before it is free text, and where a request has tools a call may stand in its
//!   place: a value of a schema where calls are JSON objects, otherwise a payload that only the output parser validates.
//! - **Work is bounded**: bytes of source, the compiled grammar's size, lexer states, and the steps that one mask may take.
//!
//! Forced tokens are not appended in one go, although a grammar often knows them: each token of a sequence needs its own row of
//! the model's state, which is a decode step here, and choosing them would need the tokenizer in the mask's path. The
//! mask leaves the model to spell forced text with the tokens that it would have chosen itself.
//!
//! There is no I/O here, no clock and no queue. Compiling takes milliseconds to a second, so it runs where prompts are rendered and
//! tokenized. It borrows a thread for its duration, whose stack is as deep as a source can nest. How masks are computed beside
//! the model thread is said at [`GrammarSlot`].

mod cache;
mod compile;
mod constraint;
mod envelope;
mod formats;
mod pattern;
mod schema;
mod slot;
mod source;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use compile::{GrammarCompiler, GrammarLimits};
pub use constraint::{Constraint, MaskState};
pub use envelope::{Calls, Envelope, Reasoning};
pub use slot::GrammarSlot;
pub use source::GrammarSource;
pub use vocabulary::Vocabulary;

use crate::ids::TokenId;

/// Why a source is refused, or why a constraint cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    #[error("the constraint has {bytes} bytes, more than the {bytes_max} allowed; shorten it")]
    TooLong { bytes: usize, bytes_max: usize },
    /// `pointer` is a JSON pointer into the schema; the whole schema is the empty one.
    #[error("the JSON schema cannot be enforced{}: {reason}", place(pointer))]
    Schema { pointer: String, reason: String },
    #[error("the regular expression cannot be enforced: {0}")]
    Regex(String),
    #[error("the grammar cannot be compiled: {0}")]
    Lark(String),
    #[error("the choices cannot be enforced: {0}")]
    Choice(String),
    #[error("the answer's delimiters cannot be enforced: {0}")]
    Envelope(String),
    #[error("the constraint is too complex to enforce: {0}; simplify it")]
    TooComplex(String),
    #[error("the model's vocabulary has no token that continues the answer as the constraint asks")]
    DeadEnd,
    /// The token was not allowed by the mask before it, or follows the end.
    #[error("token {0} is not allowed by the constraint")]
    Refused(TokenId),
    #[error("the constraint's parser failed: {0}")]
    Internal(String),
}

fn place(pointer: &str) -> String {
    if pointer.is_empty() { String::new() } else { format!(" at {pointer}") }
}

const REASON_CHARACTERS_MAX: usize = 300;

/// What llguidance says is wrong, without the pictures and dumps that follow its first line. Of an expression's error the last
/// line says it.
fn reason_of(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let last = message.lines().rev().find_map(|line| line.strip_prefix("error: "));
    let reason = match (first.strip_suffix("regex parse error:"), last) {
        (Some(before), Some(last)) => format!("{before}{last}"),
        _ => first.to_owned(),
    };
    reason.chars().take(REASON_CHARACTERS_MAX).collect()
}

/// Whether llguidance caught a panic of its own, whose text is not for whoever wrote the constraint.
fn is_panic(reason: &str) -> bool {
    reason.starts_with("panic")
}
