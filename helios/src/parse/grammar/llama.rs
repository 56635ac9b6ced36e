//! `{"name": NAME, "parameters": {...}}` before any text, or behind `<|python_tag|>`: the form of Llama 3.
//!
//! Further calls follow behind white space or a semicolon. Code behind the tag, for an interpreter that is not here, is text.

use super::super::scan::is_space;
use super::super::tape::{Stop, Tape};
use super::object::{self, Objects};

pub const OPENERS: &[&str] = &["<|python_tag|>"];
pub const FIRST_OPENERS: &[&str] = &["{"];
pub const OBJECTS: Objects = Objects { arguments: "parameters", close: "", between: ";" };

pub async fn read(tape: &Tape, opener: usize) -> Result<(), Stop> {
    if opener == 0 {
        tape.skip(is_space).await?;
        object::read(tape).await?;
    } else {
        object::members(tape).await?;
    }
    tape.end_call()?;
    while let Some(next @ (';' | '{')) = tape.visible().await {
        if next == ';' {
            tape.next().await?;
            tape.skip(is_space).await?;
        }
        object::read(tape).await?;
        tape.end_call()?;
    }
    Ok(())
}
