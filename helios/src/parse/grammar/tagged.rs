//! Arguments as tagged text, one value a tag: they become the members of a JSON object, typed by the tool's schema.

use super::super::tape::{Stop, Tape};
use super::super::tools::{ValueKind, escaped, quoted};

/// What stands around values.
#[derive(Debug)]
pub struct Values {
    pub close: &'static str,
    /// What may follow a closed value. A closing tag that none of them follows is part of the value.
    pub then: [&'static str; 2],
    /// Whether the line ends right inside the tags belong to them.
    pub on_lines: bool,
}

/// The end of a long text that is held back, because the end of its value may be in it.
const TAIL_BYTES: usize = 256;

/// Writes a call's arguments member by member.
#[derive(Debug, Default)]
pub struct Members {
    has_any: bool,
}

impl Members {
    /// Reads a value and writes it under its key. Says which of [`Values::then`] was read behind it.
    pub async fn read(&mut self, tape: &Tape, key: &str, values: &Values) -> Result<usize, Stop> {
        let separator = if self.has_any { ',' } else { '{' };
        self.has_any = true;
        tape.arguments(&format!("{separator}{}:", quoted(key)), 0);
        value(tape, tape.value_kind(key), values).await
    }

    /// Writes the end.
    pub fn finish(self, tape: &Tape) {
        tape.arguments(if self.has_any { "}" } else { "{}" }, 0);
    }
}

async fn value(tape: &Tape, kind: ValueKind, values: &Values) -> Result<usize, Stop> {
    let mut text = String::new();
    let mut is_streaming = false;
    if values.on_lines && tape.peek().await? == '\n' {
        tape.next().await?;
    }
    loop {
        text.push(tape.next().await?);
        if let Some(follower) = take_end(&mut text, values) {
            let json = if is_streaming { format!("{}\"", escaped(&text)) } else { kind.json(&text) };
            tape.arguments(&json, 0);
            return Ok(follower);
        }
        // Null would be short: so long a text is a string, if its kind has strings at all.
        if text.len() > 2 * TAIL_BYTES && matches!(kind, ValueKind::Text | ValueKind::NullableText) {
            let rest = text.split_off(tail_start(&text));
            let quote = if is_streaming { "" } else { "\"" };
            is_streaming = true;
            tape.arguments(&format!("{quote}{}", escaped(&text)), rest.len());
            text = rest;
        }
    }
}

/// Takes the end of a value off its text, if it is there.
fn take_end(text: &mut String, values: &Values) -> Option<usize> {
    let follower = values.then.iter().position(|then| text.ends_with(then))?;
    let before = text[..text.len() - values.then[follower].len()].trim_end();
    let value = before.strip_suffix(values.close)?;
    let value = if values.on_lines { value.strip_suffix('\n').unwrap_or(value) } else { value };
    text.truncate(value.len());
    Some(follower)
}

/// Where the tail begins, at a character.
fn tail_start(text: &str) -> usize {
    let mut start = text.len() - TAIL_BYTES;
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    start
}
