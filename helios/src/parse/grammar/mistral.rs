//! `[TOOL_CALLS][{"name": NAME, "arguments": {...}}, ...]`, and the later `[TOOL_CALLS]NAME[ARGS]{...}`: the forms of Mistral.
//!
//! In the later form `[CALL_ID]ID` may follow the name, `[ARGS]` may be missing, and each call has its own opener.

use super::super::json;
use super::super::scan::is_space;
use super::super::tape::{Stop, Tape};
use super::object;

pub const OPENERS: &[&str] = &["[TOOL_CALLS]"];
pub const MARKS: &[&str] = &["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"];

pub async fn read(tape: &Tape) -> Result<(), Stop> {
    match tape.visible().await {
        Some('[') => list(tape).await,
        Some('{') => {
            object::read(tape).await?;
            tape.end_call()
        }
        _ => named(tape).await,
    }
}

/// Each object of the list is a call as soon as it is complete.
async fn list(tape: &Tape) -> Result<(), Stop> {
    tape.literal("[").await?;
    loop {
        tape.skip(is_space).await?;
        object::read(tape).await?;
        tape.end_call()?;
        if tape.visible().await.is_none() || tape.one_of(&[",", "]"]).await? == 1 {
            return Ok(());
        }
    }
}

async fn named(tape: &Tape) -> Result<(), Stop> {
    tape.name_call(&tape.word().await?)?;
    if tape.peek().await? == '[' && tape.one_of(&["[CALL_ID]", "[ARGS]"]).await? == 0 {
        tape.word().await?;
        tape.literal("[ARGS]").await?;
    }
    tape.skip(is_space).await?;
    json::object_arguments(tape).await?;
    tape.end_call()
}
