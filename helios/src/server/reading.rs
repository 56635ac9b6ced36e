//! How generated text is read: as it is, or as an answer with reasoning and tool calls in it.

use std::sync::Arc;

use super::error::{ApiError, ErrorCode};
use crate::core::contract::{ReasoningParser, ToolParser};
use crate::parse::{Calls, Delimiters, OutputEvent, OutputParser, ToolChoice, Tools};
use crate::text::Piece;

/// The forms in which a core's model writes reasoning and calls.
pub type Parsers = (ToolParser, ReasoningParser);

/// What a conversation asks of its answers.
#[derive(Clone, Debug)]
pub(super) struct Protocol {
    pub parsers: Parsers,
    pub tools: Arc<Tools>,
    pub choice: ToolChoice,
    /// Whether an answer may have several calls; further ones are not shown otherwise.
    pub parallel_calls: bool,
    /// The rendered conversation, whose end may open reasoning.
    pub prompt: Arc<str>,
}

/// Reads one choice's text.
#[derive(Debug)]
pub(super) enum Reader {
    /// All text is the answer.
    Plain,
    Conversation(Box<ConversationReader>),
}

#[derive(Debug)]
pub(super) struct ConversationReader {
    /// `None` once the text has ended.
    parser: Option<OutputParser>,
    delimiters: Delimiters,
    calls: Calls,
    choice: ToolChoice,
    parallel_calls: bool,
}

impl Reader {
    /// # Errors
    /// An internal one if the system has no randomness for the calls' ids.
    pub fn new(protocol: Option<&Protocol>) -> Result<Self, ApiError> {
        let Some(protocol) = protocol else { return Ok(Self::Plain) };
        let (tool_parser, reasoning_parser) = protocol.parsers;
        let tools = Arc::clone(&protocol.tools);
        let parser = OutputParser::new(protocol.parsers, &protocol.prompt, tools, call_bits()?);
        Ok(Self::Conversation(Box::new(ConversationReader {
            parser: Some(parser),
            delimiters: Delimiters::of(tool_parser, reasoning_parser),
            calls: Calls::default(),
            choice: protocol.choice.clone(),
            parallel_calls: protocol.parallel_calls,
        })))
    }

    /// Whether a special token's text is needed to read the answer.
    pub fn needs(&self, piece: &Piece) -> bool {
        let Self::Conversation(conversation) = self else { return false };
        str::from_utf8(&piece.bytes).is_ok_and(|text| conversation.delimiters.is_mark(text))
    }

    /// Takes the next text and gives what is decided by it.
    pub fn push(&mut self, text: String) -> Vec<OutputEvent> {
        match self {
            _ if text.is_empty() => Vec::new(),
            Self::Plain => vec![OutputEvent::Text(text)],
            Self::Conversation(conversation) => {
                let events = conversation.parser.as_mut().map(|parser| parser.push(&text));
                conversation.shown(events.unwrap_or_default())
            }
        }
    }

    /// Ends the text and gives the rest.
    pub fn finish(&mut self) -> Vec<OutputEvent> {
        let Self::Conversation(conversation) = self else { return Vec::new() };
        let events = conversation.parser.take().map(OutputParser::finish);
        conversation.shown(events.unwrap_or_default())
    }

    /// Whether the answer has complete calls.
    ///
    /// # Errors
    /// What the request required of its calls and did not get.
    pub fn check_calls(&self) -> Result<bool, ApiError> {
        let Self::Conversation(conversation) = self else { return Ok(false) };
        conversation.calls.check(&conversation.choice).map_err(|error| {
            ApiError::of(ErrorCode::ToolChoiceUnsatisfied, "tool_choice", sentence(&error))
        })?;
        Ok(conversation.calls.completed() > 0)
    }
}

impl ConversationReader {
    fn shown(&mut self, mut events: Vec<OutputEvent>) -> Vec<OutputEvent> {
        for event in &events {
            self.calls.observe(event);
        }
        events
            .retain(|event| self.choice.shows(event) && (self.parallel_calls || !is_of_further_call(event)));
        events
    }
}

fn is_of_further_call(event: &OutputEvent) -> bool {
    match event {
        OutputEvent::Text(_) | OutputEvent::Reasoning(_) => false,
        OutputEvent::ToolCallStart { index, .. }
        | OutputEvent::ToolCallArguments { index, .. }
        | OutputEvent::ToolCallEnd { index } => *index > 0,
    }
}

/// Bits for one choice's call ids. The first ones are random, and an odd step keeps the following ones different.
fn call_bits() -> Result<impl FnMut() -> u128 + Send + 'static, ApiError> {
    const STEP: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| ApiError::internal(error.to_string()))?;
    let mut bits = u128::from_le_bytes(bytes);
    Ok(move || {
        bits = bits.wrapping_add(STEP);
        bits
    })
}

fn sentence(error: &impl ToString) -> String {
    let text = error.to_string();
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", characters.as_str())
}
