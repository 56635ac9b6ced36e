//! The tape between an output and the grammar that reads it: characters in, events out, and the call that is held.
//!
//! A grammar is an `async fn` that asks for one character at a time and is suspended until there is one, so that it reads
//! like the grammar that it is and cannot see where the text was cut. Nothing else is awaited anywhere in this room: a
//! grammar is a coroutine, and needs no executor.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use super::event::{OutputEvent, append};
use super::scan::is_space;
use super::tools::{Tools, ValueKind};

/// Bytes of a call's text that are held at most until it is complete. It is more than agents write but for whole files.
pub const CALL_HELD_BYTES_MAX: usize = 16 * 1024;

/// Bytes of a streaming call that wait to be understood at most, such as a list whose end decides what it is.
const UNCOVERED_BYTES_MAX: usize = 1024 * 1024;

/// Names of tools are shorter, whatever the API allows.
const NAME_BYTES_MAX: usize = 256;

/// Why a grammar stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The text is not of the form. A character that shows it is still unread.
    Malformed,
    /// The output is at its end.
    End,
}

/// Draws 128 random bits for the id of a call.
pub type RandomBits = Box<dyn FnMut() -> u128 + Send>;

/// A handle of the tape; every clone is the same tape.
#[derive(Clone)]
pub struct Tape(Arc<Mutex<State>>);

struct State {
    tools: Arc<Tools>,
    spell_id: fn(u128) -> String,
    random: RandomBits,
    unread: Option<Unread>,
    /// Text that was read and is in no event yet: it comes back as text unless it becomes a call.
    held: String,
    is_holding: bool,
    call: Call,
    calls: u32,
    events: Vec<OutputEvent>,
    has_text: bool,
}

#[derive(Clone, Copy, Debug)]
enum Unread {
    Character(char),
    End,
}

/// The call that is being read.
#[derive(Default)]
struct Call {
    /// Set once the name is read and declared.
    name: Option<String>,
    has_arguments: bool,
    /// JSON text of the arguments that is in no event yet.
    arguments: String,
    /// Bytes of `held` that what was read of the arguments covers.
    covered_bytes: usize,
    is_streaming: bool,
}

impl Tape {
    pub fn new(tools: Arc<Tools>, spell_id: fn(u128) -> String, random: RandomBits) -> Self {
        Self(Arc::new(Mutex::new(State {
            tools,
            spell_id,
            random,
            unread: None,
            held: String::new(),
            is_holding: false,
            call: Call::default(),
            calls: 0,
            events: Vec::new(),
            has_text: false,
        })))
    }

    // What the driver does.

    /// Puts the next character, or the end, before the grammar.
    pub fn offer(&self, character: Option<char>) {
        self.state().unread = Some(character.map_or(Unread::End, Unread::Character));
    }

    pub fn take_events(&self) -> Vec<OutputEvent> {
        std::mem::take(&mut self.state().events)
    }

    // What grammars read.

    /// The next character, which stays unread.
    pub async fn peek(&self) -> Result<char, Stop> {
        poll_fn(|_| match self.state().unread {
            None => Poll::Pending,
            Some(Unread::End) => Poll::Ready(Err(Stop::End)),
            Some(Unread::Character(character)) => Poll::Ready(Ok(character)),
        })
        .await
    }

    /// Reads the next character.
    pub async fn next(&self) -> Result<char, Stop> {
        let character = self.peek().await?;
        self.state().read(character)?;
        Ok(character)
    }

    /// The next character that is no white space, which stays unread; none at the end.
    pub async fn visible(&self) -> Option<char> {
        self.skip(is_space).await.ok()?;
        self.peek().await.ok()
    }

    /// Reads past blanks.
    pub async fn skip(&self, is_blank: fn(char) -> bool) -> Result<(), Stop> {
        while is_blank(self.peek().await?) {
            self.next().await?;
        }
        Ok(())
    }

    /// Reads exactly this text.
    pub async fn literal(&self, text: &str) -> Result<(), Stop> {
        self.one_of(&[text]).await.map(drop)
    }

    /// Reads one of several texts, none of which begins another, and says which.
    pub async fn one_of(&self, texts: &[&str]) -> Result<usize, Stop> {
        let mut read = String::new();
        loop {
            read.push(self.peek().await?);
            if !texts.iter().any(|text| text.starts_with(&read)) {
                return Err(Stop::Malformed);
            }
            self.next().await?;
            if let Some(found) = texts.iter().position(|&text| text == read) {
                return Ok(found);
            }
        }
    }

    /// Reads up to a delimiter and past it, and gives what stands before.
    pub async fn until(&self, delimiter: &str) -> Result<String, Stop> {
        let mut text = String::new();
        loop {
            text.push(self.next().await?);
            if text.ends_with(delimiter) {
                text.truncate(text.len() - delimiter.len());
                return Ok(text);
            }
        }
    }

    /// Reads a name: everything up to white space, a quote or a bracket.
    pub async fn word(&self) -> Result<String, Stop> {
        let mut word = String::new();
        loop {
            let character = self.peek().await?;
            if character.is_whitespace() || "<>{}[]()\"".contains(character) {
                return if word.is_empty() { Err(Stop::Malformed) } else { Ok(word) };
            }
            if word.len() + character.len_utf8() > NAME_BYTES_MAX {
                return Err(Stop::Malformed);
            }
            word.push(self.next().await?);
        }
    }

    /// Ends the call behind its closing marks. The output may end among them: the arguments say that they are complete.
    pub async fn close_call(&self, marks: &[&str]) -> Result<(), Stop> {
        for mark in marks {
            let read = match self.skip(is_space).await {
                Ok(()) => self.literal(mark).await,
                Err(stop) => Err(stop),
            };
            match read {
                Ok(()) => {}
                Err(Stop::End) => break,
                Err(Stop::Malformed) => return Err(Stop::Malformed),
            }
        }
        self.end_call()
    }

    // What grammars write.

    pub fn text(&self, text: &str) {
        self.state().text(text);
    }

    pub fn reasoning(&self, text: &str) {
        if !text.is_empty() {
            append(&mut self.state().events, OutputEvent::Reasoning(text.to_owned()));
        }
    }

    /// Whether any text has been written.
    pub fn has_text(&self) -> bool {
        self.state().has_text
    }

    /// From here on what is read is held, beginning with what was read already.
    pub fn hold(&self, read: String) {
        let mut state = self.state();
        state.held = read;
        state.is_holding = true;
    }

    /// What is held becomes text, and holding ends. A call that had begun to stream stays without its end.
    pub fn release(&self) {
        let mut state = self.state();
        let held = std::mem::take(&mut state.held);
        state.is_holding = false;
        state.text(&held);
        if std::mem::take(&mut state.call).is_streaming {
            state.calls += 1;
        }
    }

    /// What is held belongs to a delimiter, and holding ends.
    pub fn drop_held(&self) {
        let mut state = self.state();
        state.held.clear();
        state.is_holding = false;
    }

    /// Names the call. A name that no declared tool has is malformed.
    pub fn name_call(&self, name: &str) -> Result<(), Stop> {
        let mut state = self.state();
        if state.call.name.is_some() || state.tools.find(name).is_none() {
            return Err(Stop::Malformed);
        }
        state.call.name = Some(name.to_owned());
        state.call.covered_bytes = state.held.len();
        Ok(())
    }

    /// How the named call's tool reads a parameter's text.
    pub fn value_kind(&self, parameter: &str) -> ValueKind {
        let state = self.state();
        let tool = state.call.name.as_deref().and_then(|name| state.tools.find(name));
        tool.map_or(ValueKind::Undeclared, |tool| tool.value_kind(parameter))
    }

    /// Appends JSON text to the call's arguments, which covers all that was read but `uncovered_bytes`.
    pub fn arguments(&self, json: &str, uncovered_bytes: usize) {
        let mut state = self.state();
        state.call.has_arguments = true;
        state.call.arguments.push_str(json);
        state.call.covered_bytes = state.held.len().saturating_sub(uncovered_bytes);
        if state.call.is_streaming {
            state.stream();
        }
    }

    /// The call is complete; one without arguments gets an empty object. A call without a name is malformed.
    pub fn end_call(&self) -> Result<(), Stop> {
        let mut state = self.state();
        if state.call.name.is_none() {
            return Err(Stop::Malformed);
        }
        if !state.call.has_arguments {
            state.call.arguments.push_str("{}");
        }
        state.stream();
        let index = state.calls;
        append(&mut state.events, OutputEvent::ToolCallEnd { index });
        state.calls += 1;
        state.call = Call::default();
        state.held.clear();
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing here panics while it holds the lock halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn read(&mut self, character: char) -> Result<(), Stop> {
        if self.is_holding {
            let is_full = self.held.len() + character.len_utf8() > CALL_HELD_BYTES_MAX;
            if is_full && !self.call.is_streaming && self.call.name.is_some() {
                self.stream();
            }
            let held_bytes_max =
                if self.call.is_streaming { UNCOVERED_BYTES_MAX } else { CALL_HELD_BYTES_MAX };
            if self.held.len() + character.len_utf8() > held_bytes_max {
                return Err(Stop::Malformed);
            }
            self.held.push(character);
        }
        self.unread = None;
        Ok(())
    }

    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.has_text = true;
            append(&mut self.events, OutputEvent::Text(text.to_owned()));
        }
    }

    /// Writes what is known of the named call, and holds no more than what that does not cover.
    fn stream(&mut self) {
        let index = self.calls;
        if !self.call.is_streaming {
            self.call.is_streaming = true;
            let name = self.call.name.clone().expect("only a named call streams");
            let id = (self.spell_id)((self.random)());
            append(&mut self.events, OutputEvent::ToolCallStart { index, id, name });
        }
        let delta = std::mem::take(&mut self.call.arguments);
        if !delta.is_empty() {
            append(&mut self.events, OutputEvent::ToolCallArguments { index, delta });
        }
        self.held.drain(..std::mem::take(&mut self.call.covered_bytes));
    }
}
