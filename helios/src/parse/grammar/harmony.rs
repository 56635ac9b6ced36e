//! Messages in channels, `<|channel|>CHANNEL to=RECIPIENT<|message|>BODY<|end|>`: the whole output's form in gpt-oss.
//!
//! `analysis` is reasoning, `final` is the answer, and so is `commentary` that is for nobody; a message to
//! `functions.NAME` is a call. What is in no message is text, and so is a message whose head says something else.

use super::super::json;
use super::super::scan::{Scanner, is_space, never};
use super::super::tape::{Stop, Tape};

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const CONSTRAIN: &str = "<|constrain|>";
const ENDS: [&str; 3] = ["<|end|>", "<|return|>", "<|call|>"];

pub const OPENERS: &[&str] = &[START, CHANNEL];
pub const MARKS: &[&str] = &[START, CHANNEL, MESSAGE, CONSTRAIN, ENDS[0], ENDS[1], ENDS[2]];

/// What the output begins behind, so that a message after another one repeats it.
pub const NEXT: &str = "<|start|>assistant";
/// What opens reasoning, and the answer.
pub const ANALYSIS: &str = "<|channel|>analysis<|message|>";
pub const FINAL: &str = "<|channel|>final<|message|>";
pub const END: &str = ENDS[0];

/// What opens a call of a tool.
pub fn call_head(name: &str) -> String {
    format!("<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>")
}

/// What can end a message's body: the next one's head, too.
const BODY_ENDS: &[&str] = &[START, CHANNEL, ENDS[0], ENDS[1], ENDS[2]];

/// Heads are a role, a channel, a recipient and a type.
const HEAD_BYTES_MAX: usize = 512;

/// What a message is for.
#[derive(Debug, PartialEq, Eq)]
enum Head {
    Reasoning,
    Answer,
    Call(String),
}

/// Reads an output from its beginning, behind `<|start|>assistant`, to its end.
pub(in crate::parse) async fn read(tape: Tape) {
    let mut opener = flow(&tape, OPENERS, Tape::text).await;
    while let Some(begun) = opener {
        tape.hold(OPENERS[begun].to_owned());
        opener = match message(&tape, begun).await {
            Ok(found) => found,
            Err(_) => {
                tape.release();
                None
            }
        };
        if opener.is_none() {
            opener = flow(&tape, OPENERS, Tape::text).await;
        }
    }
}

/// Reads a message from behind its opener, and says which opener ended it, if one did.
async fn message(tape: &Tape, opener: usize) -> Result<Option<usize>, Stop> {
    match parse_head(&head(tape).await?, OPENERS[opener] == START)? {
        Head::Call(name) => {
            tape.name_call(&name)?;
            call(tape).await?;
            tape.drop_held();
            Ok(None)
        }
        kind => {
            tape.drop_held();
            let write = if kind == Head::Reasoning { Tape::reasoning } else { Tape::text };
            let end = flow(tape, BODY_ENDS, write).await;
            Ok(end.filter(|&end| end < OPENERS.len()))
        }
    }
}

/// Passes text on up to one of the delimiters and past it, and says which one it was; none at the output's end.
async fn flow(tape: &Tape, delimiters: &[&'static str], write: fn(&Tape, &str)) -> Option<usize> {
    let mut scanner = Scanner::new(delimiters, never);
    loop {
        let Ok(character) = tape.next().await else {
            write(tape, &scanner.take());
            return None;
        };
        let mut released = String::new();
        let found = scanner.push(character, &mut released);
        write(tape, &released);
        if found.is_some() {
            return found;
        }
    }
}

async fn head(tape: &Tape) -> Result<String, Stop> {
    let mut head = String::new();
    loop {
        head.push(tape.next().await?);
        if let Some(head) = head.strip_suffix(MESSAGE) {
            return Ok(head.to_owned());
        }
        if head.len() > HEAD_BYTES_MAX || BODY_ENDS.iter().any(|end| *end != CHANNEL && head.ends_with(end)) {
            return Err(Stop::Malformed);
        }
    }
}

/// A head is `ROLE to=RECIPIENT<|channel|>CHANNEL to=RECIPIENT <|constrain|>TYPE`, the role only behind `<|start|>`.
fn parse_head(head: &str, has_role: bool) -> Result<Head, Stop> {
    let (role, channel) =
        if has_role { head.split_once(CHANNEL).ok_or(Stop::Malformed)? } else { ("assistant", head) };
    let mut recipient = None;
    let mut words = [Vec::new(), Vec::new()];
    for (part, words) in [role, channel.split(CONSTRAIN).next().unwrap_or_default()].iter().zip(&mut words) {
        for word in part.split_whitespace() {
            match word.strip_prefix("to=") {
                Some(name) => recipient = Some(name),
                None => words.push(word),
            }
        }
    }
    if words[0] != ["assistant"] {
        return Err(Stop::Malformed);
    }
    match (recipient, words[1].first()) {
        (Some(name), Some(_)) => Ok(Head::Call(name.strip_prefix("functions.").unwrap_or(name).to_owned())),
        (None, Some(&"analysis")) => Ok(Head::Reasoning),
        (None, Some(&("final" | "commentary"))) => Ok(Head::Answer),
        _ => Err(Stop::Malformed),
    }
}

/// Reads a call's arguments and the mark that ends its message. The output may end in place of a mark behind arguments, which
/// say themselves that they are complete.
async fn call(tape: &Tape) -> Result<(), Stop> {
    tape.skip(is_space).await?;
    let has_arguments = tape.peek().await? == '{';
    if has_arguments {
        json::object_arguments(tape).await?;
    }
    if !has_arguments || tape.visible().await.is_some() {
        match tape.one_of(&ENDS).await {
            Err(Stop::End) if has_arguments => {}
            end => drop(end?),
        }
    }
    tape.end_call()
}
