//! `<|tool_call>call:NAME{KEY:VALUE,...}<tool_call|>`, the form of Gemma 4 and, with other marks, of FunctionGemma.
//!
//! Values are written as JSON is, but for strings: these stand between a mark of their own, with nothing escaped, and keys
//! stand bare. A bare value that is no number, `true`, `false` or `null` is a string.

use super::super::scan::is_space;
use super::super::tape::{Stop, Tape};
use super::super::tools::quoted;

pub const OPENERS: &[&str] = &["<|tool_call>", "<start_function_call>"];
pub const MARKS: &[&str] =
    &["<|tool_call>", "<tool_call|>", "<|\"|>", "<start_function_call>", "<end_function_call>", "<escape>"];

/// The marks that go with each opener.
const CLOSERS: [&str; 2] = ["<tool_call|>", "<end_function_call>"];
const QUOTES: [&str; 2] = ["<|\"|>", "<escape>"];

/// Containers inside containers, as many as JSON may have.
const DEPTH_MAX: usize = 127;

pub async fn read(tape: &Tape, opener: usize) -> Result<(), Stop> {
    tape.skip(is_space).await?;
    tape.literal("call:").await?;
    tape.name_call(&tape.word().await?)?;
    tape.literal("{").await?;
    tape.arguments("{", 0);
    members(tape, QUOTES[opener]).await?;
    tape.close_call(&[CLOSERS[opener]]).await
}

/// Reads what the outermost object holds, and its end.
async fn members(tape: &Tape, quote: &str) -> Result<(), Stop> {
    let mut closers = vec!['}'];
    let mut is_first = true;
    while let Some(&closer) = closers.last() {
        tape.skip(is_space).await?;
        if tape.peek().await? == closer {
            copy(tape).await?;
            closers.pop();
            is_first = false;
            continue;
        }
        if !is_first {
            tape.literal(",").await?;
            tape.arguments(",", 0);
            tape.skip(is_space).await?;
        }
        if closer == '}' {
            key(tape, quote).await?;
        }
        match tape.peek().await? {
            '{' => closers.push('}'),
            '[' => closers.push(']'),
            _ => {
                scalar(tape, quote).await?;
                is_first = false;
                continue;
            }
        }
        if closers.len() > DEPTH_MAX {
            return Err(Stop::Malformed);
        }
        copy(tape).await?;
        is_first = true;
    }
    Ok(())
}

async fn copy(tape: &Tape) -> Result<(), Stop> {
    let character = tape.next().await?;
    tape.arguments(character.encode_utf8(&mut [0; 4]), 0);
    Ok(())
}

async fn key(tape: &Tape, quote: &str) -> Result<(), Stop> {
    let key = if tape.peek().await? == '<' {
        tape.literal(quote).await?;
        let key = tape.until(quote).await?;
        tape.skip(is_space).await?;
        tape.literal(":").await?;
        key
    } else {
        tape.until(":").await?.trim().to_owned()
    };
    if key.is_empty() {
        return Err(Stop::Malformed);
    }
    tape.skip(is_space).await?;
    tape.arguments(&format!("{}:", quoted(&key)), 0);
    Ok(())
}

async fn scalar(tape: &Tape, quote: &str) -> Result<(), Stop> {
    if tape.peek().await? == '<' {
        tape.literal(quote).await?;
        let text = tape.until(quote).await?;
        tape.arguments(&quoted(&text), 0);
        return Ok(());
    }
    let mut text = String::new();
    while !matches!(tape.peek().await?, ',' | '}' | ']') {
        text.push(tape.next().await?);
    }
    let text = text.trim();
    if text.is_empty() {
        return Err(Stop::Malformed);
    }
    let is_json = serde_json::from_str::<serde_json::Value>(text).is_ok();
    tape.arguments(&if is_json { text.to_owned() } else { quoted(text) }, 0);
    Ok(())
}
