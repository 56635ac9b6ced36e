//! Output parsers: the text that a model generates becomes answer, reasoning and tool calls.
//!
//! The room owns the forms in which model families write tool calls and reasoning, one file a form below `grammar/`.
//! It reads whole characters and the end, and writes [`OutputEvent`]s. What it promises, for every form:
//!
//! - Where the text was cut into pieces never matters: grammars see one character at a time.
//! - A call is a call only if the form's grammar and the request's tools say so. Anything else, a literal tag in prose, an
//!   undeclared name, malformed or unfinished arguments, is text exactly as it was generated.
//! - To keep that promise a call is held until it is complete, up to [`CALL_HELD_BYTES_MAX`] bytes of its text. A longer one whose
//!   name is known starts to stream; should it break after that, it stays without its [`OutputEvent::ToolCallEnd`]. A longer
//!   one whose name is not known is text.
//! - Arguments are one valid JSON object, whatever the form writes. Their text is the model's own where the form is JSON.
//! - Nothing is lost: every character is in the answer, the reasoning, a call, or belongs to a delimiter. White space next to
//!   a call's delimiters and line ends next to reasoning's belong to them ([`BLANK_BYTES_MAX`] bytes of them at most before one).
//! - Work is linear in the text and memory is bounded.
//!
//! There is no I/O here, no clock and no randomness: the source of call ids is given. Nothing here knows of HTTP or of tokens.

mod choice;
mod delimiters;
mod event;
mod grammar;
mod json;
mod output;
mod reasoning;
mod scan;
mod tape;
#[cfg(test)]
mod tests;
mod tools;

pub use choice::{Calls, ChoiceError, ToolChoice};
pub use delimiters::{Delimiters, Tags};
pub use event::OutputEvent;
pub use grammar::{Objects, harmony};
pub use output::OutputParser;
pub use scan::BLANK_BYTES_MAX;
pub use tape::CALL_HELD_BYTES_MAX;
pub use tools::{Tool, Tools};
