//! `<tool_call>{"name": NAME, "arguments": {...}}</tool_call>`, the form of Hermes, Qwen 2.5 and 3, and SmolLM 3.

use super::super::scan::is_space;
use super::super::tape::{Stop, Tape};
use super::object::{self, Objects};

pub const OPENERS: &[&str] = &["<tool_call>"];
pub const MARKS: &[&str] = &["<tool_call>", "</tool_call>"];
pub const OBJECTS: Objects =
    Objects { arguments: "arguments", close: "</tool_call>", between: "<tool_call>" };

pub async fn read(tape: &Tape) -> Result<(), Stop> {
    tape.skip(is_space).await?;
    object::read(tape).await?;
    tape.close_call(&["</tool_call>"]).await
}
