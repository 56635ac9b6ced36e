//! The grammars of tool calls, one file a form.
//!
//! A grammar starts behind its opener and ends behind a call, or a section of them. It fails at the first character that the
//! form does not allow, so that prose with a tag in it flows on at once; what was read of the call by then is text. Scanning
//! goes on with the next character, and does not look again at what was read: work stays linear.

mod deepseek;
mod gemma;
mod glm;
pub mod harmony;
mod hermes;
mod kimi;
mod llama;
mod mistral;
mod object;
mod qwen;
mod section;
mod tagged;

pub use object::Objects;

use super::tape::{Stop, Tape};
use crate::core::contract::ToolParser;

/// A form of tool calls that stand in text. Harmony's do not: its grammar is the whole output's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grammar {
    Hermes,
    Qwen,
    Llama,
    Mistral,
    Glm,
    Deepseek,
    Kimi,
    Gemma,
}

impl Grammar {
    pub fn of(parser: ToolParser) -> Option<Self> {
        match parser {
            ToolParser::Unspecified | ToolParser::None | ToolParser::Harmony => None,
            ToolParser::HermesJson => Some(Self::Hermes),
            ToolParser::QwenXml => Some(Self::Qwen),
            ToolParser::Llama3Json => Some(Self::Llama),
            ToolParser::Mistral => Some(Self::Mistral),
            ToolParser::Glm => Some(Self::Glm),
            ToolParser::Deepseek => Some(Self::Deepseek),
            ToolParser::Kimi => Some(Self::Kimi),
            ToolParser::Gemma => Some(Self::Gemma),
        }
    }

    /// What opens a call anywhere in text.
    pub fn openers(self) -> &'static [&'static str] {
        match self {
            Self::Hermes => hermes::OPENERS,
            Self::Qwen => qwen::OPENERS,
            Self::Llama => llama::OPENERS,
            Self::Mistral => mistral::OPENERS,
            Self::Glm => glm::OPENERS,
            Self::Deepseek => deepseek::OPENERS,
            Self::Kimi => kimi::OPENERS,
            Self::Gemma => gemma::OPENERS,
        }
    }

    /// What opens a call before any text alone. Their indexes follow those of [`Grammar::openers`].
    pub fn first_openers(self) -> &'static [&'static str] {
        if self == Self::Llama { llama::FIRST_OPENERS } else { &[] }
    }

    /// How calls are written, if each is one JSON object.
    pub fn objects(self) -> Option<Objects> {
        match self {
            Self::Hermes => Some(hermes::OBJECTS),
            Self::Llama => Some(llama::OBJECTS),
            _ => None,
        }
    }

    /// Every delimiter of the form.
    pub fn marks(self) -> &'static [&'static str] {
        match self {
            Self::Hermes => hermes::MARKS,
            Self::Qwen => qwen::MARKS,
            Self::Llama => llama::OPENERS,
            Self::Mistral => mistral::MARKS,
            Self::Glm => glm::MARKS,
            Self::Deepseek => deepseek::MARKS,
            Self::Kimi => kimi::MARKS,
            Self::Gemma => gemma::MARKS,
        }
    }

    /// Whether a section of calls ends reasoning that its tag has not closed, as the family's own parsers have it.
    pub fn ends_reasoning(self) -> bool {
        self == Self::Kimi
    }

    /// Reads the calls behind an opener.
    pub async fn read(self, tape: &Tape, opener: usize) -> Result<(), Stop> {
        match self {
            Self::Hermes => hermes::read(tape).await,
            Self::Qwen => qwen::read(tape, opener).await,
            Self::Llama => llama::read(tape, opener).await,
            Self::Mistral => mistral::read(tape).await,
            Self::Glm => glm::read(tape).await,
            Self::Deepseek => deepseek::read(tape, opener).await,
            Self::Kimi => kimi::read(tape, opener).await,
            Self::Gemma => gemma::read(tape, opener).await,
        }
    }
}
