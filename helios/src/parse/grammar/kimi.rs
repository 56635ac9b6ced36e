//! `<|tool_call_begin|>functions.NAME:N<|tool_call_argument_begin|>{...}<|tool_call_end|>` in sections: the form of Kimi K2.
//!
//! The model's own id names the tool; N counts the calls of a conversation.

use super::super::json;
use super::super::scan::is_space;
use super::super::tape::{Stop, Tape};
use super::section::has_another;

const CALL: &str = "<|tool_call_begin|>";
const ARGUMENTS: &str = "<|tool_call_argument_begin|>";
const CALL_END: &str = "<|tool_call_end|>";
// Both spellings occur.
const SECTIONS: [&str; 2] = ["<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"];
const SECTION_ENDS: [&str; 2] = ["<|tool_calls_section_end|>", "<|tool_call_section_end|>"];

pub const OPENERS: &[&str] = &[CALL, SECTIONS[0], SECTIONS[1]];
pub const MARKS: &[&str] =
    &[CALL, ARGUMENTS, CALL_END, SECTIONS[0], SECTIONS[1], SECTION_ENDS[0], SECTION_ENDS[1]];

pub async fn read(tape: &Tape, opener: usize) -> Result<(), Stop> {
    if opener != 0 {
        tape.skip(is_space).await?;
        tape.literal(CALL).await?;
    }
    loop {
        call(tape).await?;
        if !has_another(tape, CALL, &SECTION_ENDS).await? {
            return Ok(());
        }
    }
}

async fn call(tape: &Tape) -> Result<(), Stop> {
    tape.skip(is_space).await?;
    let id = tape.word().await?;
    tape.name_call(tool_name(&id))?;
    tape.skip(is_space).await?;
    tape.literal(ARGUMENTS).await?;
    tape.skip(is_space).await?;
    json::object_arguments(tape).await?;
    tape.close_call(&[CALL_END]).await
}

/// The tool's name in an id such as `functions.search:2`.
fn tool_name(id: &str) -> &str {
    let name = match id.rsplit_once(':') {
        Some((name, count)) if count.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => id,
    };
    name.strip_prefix("functions.").unwrap_or(name)
}
