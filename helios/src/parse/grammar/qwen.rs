//! `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`: the form of Qwen 3 Coder.
//!
//! The outer tags may be missing: the models forget them.

use super::super::scan::is_space;
use super::super::tape::{Stop, Tape};
use super::tagged::{Members, Values};

pub const OPENERS: &[&str] = &["<tool_call>", "<function="];
pub const MARKS: &[&str] = &["<tool_call>", "</tool_call>"];

const VALUES: Values = Values { close: "</parameter>", then: ["<parameter=", "</function>"], on_lines: true };

pub async fn read(tape: &Tape, opener: usize) -> Result<(), Stop> {
    if opener == 0 {
        tape.skip(is_space).await?;
        tape.literal("<function=").await?;
        function(tape).await?;
        return tape.close_call(&["</tool_call>"]).await;
    }
    function(tape).await?;
    tape.end_call()?;
    while tape.visible().await == Some('<') {
        match tape.one_of(&["</tool_call>", "<function=", "<tool_call>"]).await? {
            0 => return Ok(()),
            1 => {}
            _ => {
                tape.skip(is_space).await?;
                tape.literal("<function=").await?;
            }
        }
        function(tape).await?;
        tape.end_call()?;
    }
    Ok(())
}

async fn function(tape: &Tape) -> Result<(), Stop> {
    tape.name_call(&tape.word().await?)?;
    tape.literal(">").await?;
    tape.skip(is_space).await?;
    let mut members = Members::default();
    let mut is_over = tape.one_of(&VALUES.then).await? == 1;
    while !is_over {
        let key = tape.until(">").await?;
        is_over = members.read(tape, key.trim(), &VALUES).await? == 1;
    }
    members.finish(tape);
    Ok(())
}
