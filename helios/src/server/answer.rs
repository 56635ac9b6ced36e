//! What a request's choices tell: the one stream of events that every API spells in its own way.

use serde_json::{Value, json};

use super::logprobs::TokenReport;
use crate::parse::OutputEvent;

/// What a choice has to tell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ChoiceEvent {
    /// A step of the answer, and the tokens that it completes. Tokens may come with an empty text.
    Output { output: OutputEvent, tokens: Vec<TokenReport> },
    /// The choice's last event.
    Finished(Finish),
}

/// Why a choice ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// The model ended its answer.
    End,
    /// The model ended its answer, in which it called tools.
    Calls,
    StopString(String),
    /// The request's output limit.
    Length,
    /// The context is full, before the request's output limit.
    Context,
}

impl Finish {
    /// The completion APIs' `finish_reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::End | Self::StopString(_) => "stop",
            Self::Calls => "tool_calls",
            Self::Length | Self::Context => "length",
        }
    }
}

/// All that a choice told.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub text: String,
    pub reasoning: String,
    pub calls: Vec<Call>,
    pub tokens: Vec<TokenReport>,
    pub finish: Finish,
}

/// A tool call; its arguments are JSON text, cut off where the answer was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub id: String,
    pub name: String,
    pub arguments: String,
}

impl Answer {
    pub fn empty() -> Self {
        Self {
            text: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            tokens: Vec::new(),
            finish: Finish::Length,
        }
    }

    pub fn take(&mut self, event: ChoiceEvent) {
        match event {
            ChoiceEvent::Output { output, tokens } => {
                self.tokens.extend(tokens);
                self.take_output(output);
            }
            ChoiceEvent::Finished(finish) => self.finish = finish,
        }
    }

    fn take_output(&mut self, output: OutputEvent) {
        match output {
            OutputEvent::Text(text) => self.text.push_str(&text),
            OutputEvent::Reasoning(text) => self.reasoning.push_str(&text),
            OutputEvent::ToolCallStart { id, name, .. } => {
                self.calls.push(Call { id, name, arguments: String::new() });
            }
            OutputEvent::ToolCallArguments { delta, .. } => {
                let call = self.calls.last_mut().expect("a call starts before its arguments");
                call.arguments.push_str(&delta);
            }
            OutputEvent::ToolCallEnd { .. } => {}
        }
    }
}

/// Tokens counted over all choices; a prompt counts once, however often it is continued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub completion_tokens: usize,
    /// Those of the completion's that are reasoning.
    pub reasoning_tokens: usize,
}

impl Usage {
    /// The completion APIs' `usage`.
    pub fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": self.reasoning_tokens,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        })
    }
}
