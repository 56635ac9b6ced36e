//! Sections of calls between full-width marks: the forms of DeepSeek V3 and R1, and of V3.1.
//!
//! Within the marks the older form is `function`, separator, name, and JSON in a fence; the later one is name, separator, JSON.

use super::super::json;
use super::super::scan::is_space;
use super::super::tape::{Stop, Tape};
use super::section::has_another;

const SECTION: &str = "<｜tool▁calls▁begin｜>";
const SECTION_END: &str = "<｜tool▁calls▁end｜>";
const CALL: &str = "<｜tool▁call▁begin｜>";
const CALL_END: &str = "<｜tool▁call▁end｜>";
const SEPARATOR: &str = "<｜tool▁sep｜>";

pub const OPENERS: &[&str] = &[SECTION, CALL];
pub const MARKS: &[&str] = &[SECTION, SECTION_END, CALL, CALL_END, SEPARATOR];

pub async fn read(tape: &Tape, opener: usize) -> Result<(), Stop> {
    if opener == 0 {
        tape.skip(is_space).await?;
        tape.literal(CALL).await?;
    }
    loop {
        call(tape).await?;
        if !has_another(tape, CALL, &[SECTION_END]).await? {
            return Ok(());
        }
    }
}

async fn call(tape: &Tape) -> Result<(), Stop> {
    tape.skip(is_space).await?;
    let first = tape.word().await?;
    tape.skip(is_space).await?;
    tape.literal(SEPARATOR).await?;
    tape.skip(is_space).await?;
    if tape.peek().await? == '{' {
        tape.name_call(&first)?;
        json::object_arguments(tape).await?;
        return tape.close_call(&[CALL_END]).await;
    }
    if first != "function" {
        return Err(Stop::Malformed);
    }
    tape.name_call(&tape.word().await?)?;
    tape.skip(is_space).await?;
    tape.literal("```json").await?;
    tape.skip(is_space).await?;
    json::object_arguments(tape).await?;
    tape.close_call(&["```", CALL_END]).await
}
