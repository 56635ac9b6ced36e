//! `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`, the form of GLM 4.5 and its successors.
//!
//! Line ends stand between the tags, or nothing does.

use super::super::scan::is_space;
use super::super::tape::{Stop, Tape};
use super::tagged::{Members, Values};

pub const OPENERS: &[&str] = &["<tool_call>"];
pub const MARKS: &[&str] =
    &["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"];

const VALUES: Values = Values { close: "</arg_value>", then: ["<arg_key>", "</tool_call>"], on_lines: false };

pub async fn read(tape: &Tape) -> Result<(), Stop> {
    tape.skip(is_space).await?;
    tape.name_call(&tape.word().await?)?;
    tape.skip(is_space).await?;
    let mut members = Members::default();
    let mut is_over = tape.one_of(&VALUES.then).await? == 1;
    while !is_over {
        let key = tape.until("</arg_key>").await?;
        tape.skip(is_space).await?;
        tape.literal("<arg_value>").await?;
        is_over = members.read(tape, key.trim(), &VALUES).await? == 1;
    }
    members.finish(tape);
    tape.end_call()
}
