//! One output's parser: it drives the grammar of the whole output, text, reasoning and calls in turn.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use super::delimiters::Delimiters;
use super::event::OutputEvent;
use super::grammar::{Grammar, harmony};
use super::reasoning;
use super::scan::{Scanner, is_space, never};
use super::tape::Tape;
use super::tools::Tools;
use crate::core::contract::{ReasoningParser, ToolParser};

/// Reads one output, piece by piece.
pub struct OutputParser {
    tape: Tape,
    grammar: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// What comes next in an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Text,
    Reasoning,
    /// A call, behind the opener of this index. The opener is held.
    Call(usize),
    End,
}

impl OutputParser {
    /// A parser for the output that continues `prompt`, whose end may have opened or closed reasoning already.
    ///
    /// `random` draws 128 random bits a call; ids are unique as far as the bits are.
    pub fn new(
        parsers: (ToolParser, ReasoningParser),
        prompt: &str,
        tools: Arc<Tools>,
        random: impl FnMut() -> u128 + Send + 'static,
    ) -> Self {
        let (tool_parser, reasoning_parser) = parsers;
        let spell_id = if tool_parser == ToolParser::Mistral { nine_letters } else { call_id };
        let grammar = if tools.is_empty() { None } else { Grammar::of(tool_parser) };
        let delimiters = Delimiters::of(tool_parser, reasoning_parser);
        let first = if delimiters.begin_in_reasoning(prompt) { Found::Reasoning } else { Found::Text };
        let tape = Tape::new(tools, spell_id, Box::new(random));
        let grammar: Pin<Box<dyn Future<Output = ()> + Send>> = match tool_parser {
            ToolParser::Harmony => Box::pin(harmony::read(tape.clone())),
            _ => Box::pin(read(tape.clone(), delimiters, grammar, first)),
        };
        Self { tape, grammar }
    }

    /// Takes the next text and gives what is decided by it.
    pub fn push(&mut self, text: &str) -> Vec<OutputEvent> {
        for character in text.chars() {
            self.feed(Some(character));
        }
        self.tape.take_events()
    }

    /// Ends the output and gives the rest.
    pub fn finish(mut self) -> Vec<OutputEvent> {
        self.feed(None);
        self.tape.take_events()
    }

    fn feed(&mut self, character: Option<char>) {
        self.tape.offer(character);
        let is_over = self.grammar.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        debug_assert_eq!(is_over, character.is_none(), "a grammar reads to the end and no further");
    }
}

impl fmt::Debug for OutputParser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OutputParser").finish_non_exhaustive()
    }
}

/// The grammar of an output with tags: reasoning first, then text with calls in it.
async fn read(tape: Tape, delimiters: Delimiters, grammar: Option<Grammar>, first: Found) {
    let mut found = first;
    loop {
        found = match (found, grammar) {
            (Found::Text, _) => text(&tape, &delimiters, grammar).await,
            (Found::Reasoning, _) => reasoning::read(&tape, &delimiters).await,
            (Found::Call(opener), Some(grammar)) => call(&tape, grammar, opener).await,
            (Found::Call(_), None) => {
                tape.release();
                Found::Text
            }
            (Found::End, _) => return,
        };
    }
}

/// Reads text up to what opens something else.
async fn text(tape: &Tape, delimiters: &Delimiters, grammar: Option<Grammar>) -> Found {
    let reasoning = delimiters.reasoning.map(|tags| tags.open);
    let (calls, first_calls) =
        if grammar.is_some() { (delimiters.calls, delimiters.first_calls) } else { (&[][..], &[][..]) };
    // Those that count anywhere stand in the middle, between those that only count before any text.
    let all: Vec<&'static str> = reasoning.iter().chain(calls).chain(first_calls).copied().collect();
    let offset = usize::from(reasoning.is_some());
    let anywhere = offset..offset + calls.len();
    let mut scanner = Scanner::new(&all, if all.is_empty() { never } else { is_space });
    loop {
        let Ok(character) = tape.next().await else {
            tape.text(&scanner.take());
            return Found::End;
        };
        let mut released = String::new();
        let found = scanner.push(character, &mut released);
        tape.text(&released);
        match found {
            None => {}
            Some(found) if tape.has_text() && !anywhere.contains(&found) => tape.text(&scanner.take()),
            Some(found) if found < offset => return Found::Reasoning,
            Some(found) => {
                tape.hold(scanner.take());
                return Found::Call(found - offset);
            }
        }
    }
}

/// Reads what may be a call. White space behind a call belongs to it.
async fn call(tape: &Tape, grammar: Grammar, opener: usize) -> Found {
    if grammar.read(tape, opener).await.is_ok() {
        tape.drop_held();
        tape.visible().await;
    } else {
        tape.release();
    }
    Found::Text
}

fn call_id(random: u128) -> String {
    format!("call_{:024x}", random >> 32)
}

/// Nine letters and digits, which is all that templates of this family take.
fn nine_letters(mut random: u128) -> String {
    const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut letter = || {
        let index = (random % 62) as usize;
        random /= 62;
        char::from(LETTERS[index])
    };
    (0..9).map(|_| letter()).collect()
}
