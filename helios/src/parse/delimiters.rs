//! Which texts open and close reasoning and calls, for each pair of parsers.

use super::grammar::{self, Grammar, Objects};
use crate::core::contract::{ReasoningParser, ToolParser};

/// What stands around reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags {
    pub open: &'static str,
    pub close: &'static str,
}

/// The delimiters of an output, outside which it is the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delimiters {
    /// Reasoning comes first: behind any other text its tags are text.
    pub reasoning: Option<Tags>,
    /// Whether the output begins in reasoning unless the prompt's end closed it.
    pub begins_open: bool,
    /// What opens a call, or a section of calls.
    pub calls: &'static [&'static str],
    /// What opens a call before any text.
    pub first_calls: &'static [&'static str],
    /// How calls are written, if each is one JSON object.
    pub objects: Option<Objects>,
    /// Whether a call ends reasoning that is still open.
    pub calls_end_reasoning: bool,
    /// Every delimiter of the calls' form.
    pub marks: &'static [&'static str],
}

impl Delimiters {
    pub fn of(tools: ToolParser, reasoning: ReasoningParser) -> Self {
        let grammar = Grammar::of(tools);
        let (calls, first_calls, marks) = match grammar {
            Some(grammar) => (grammar.openers(), grammar.first_openers(), grammar.marks()),
            None if tools == ToolParser::Harmony => {
                (grammar::harmony::OPENERS, &[][..], grammar::harmony::MARKS)
            }
            None => (&[][..], &[][..], &[][..]),
        };
        Self {
            reasoning: tags(reasoning),
            begins_open: reasoning == ReasoningParser::ThinkOpen,
            calls,
            first_calls,
            objects: grammar.and_then(Grammar::objects),
            calls_end_reasoning: grammar.is_some_and(Grammar::ends_reasoning),
            marks,
        }
    }

    /// Whether the text of a special token belongs to these forms. A parser needs it, so that decoding must not hide it.
    pub fn is_mark(&self, text: &str) -> bool {
        self.marks.contains(&text)
            || self
                .reasoning
                .is_some_and(|tags| tags.close == text || tags.open.starts_with(text) && text.len() > 1)
    }

    /// Whether an output that continues this prompt begins in reasoning.
    pub fn begin_in_reasoning(&self, prompt: &str) -> bool {
        let prompt = prompt.trim_end();
        self.reasoning.is_some_and(|tags| {
            if self.begins_open { !prompt.ends_with(tags.close) } else { prompt.ends_with(tags.open) }
        })
    }
}

fn tags(reasoning: ReasoningParser) -> Option<Tags> {
    let (open, close) = match reasoning {
        ReasoningParser::Unspecified | ReasoningParser::None | ReasoningParser::Harmony => return None,
        ReasoningParser::ThinkTags | ReasoningParser::ThinkOpen => ("<think>", "</think>"),
        ReasoningParser::ThinkBrackets => ("[THINK]", "[/THINK]"),
        ReasoningParser::ThoughtChannel => ("<|channel>thought", "<channel|>"),
    };
    Some(Tags { open, close })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompts_end_says_where_an_output_begins() {
        let begins =
            |reasoning, prompt| Delimiters::of(ToolParser::None, reasoning).begin_in_reasoning(prompt);
        assert!(begins(ReasoningParser::ThinkTags, "<|im_start|>assistant\n<think>\n"));
        assert!(!begins(ReasoningParser::ThinkTags, "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
        assert!(!begins(ReasoningParser::ThinkTags, "say <think> twice<|im_end|>\n<|im_start|>assistant\n"));
        assert!(begins(ReasoningParser::ThinkOpen, "<|im_start|>assistant\n"));
        assert!(!begins(ReasoningParser::ThinkOpen, "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
        assert!(!begins(ReasoningParser::ThoughtChannel, "<|turn>model\n<|channel>thought\n<channel|>"));
        assert!(!begins(ReasoningParser::None, "<think>"));
    }

    #[test]
    fn marks_are_the_special_tokens_that_parsers_need() {
        let marks = Delimiters::of(ToolParser::Kimi, ReasoningParser::ThinkTags);
        assert!(marks.is_mark("<|tool_call_argument_begin|>") && marks.is_mark("</think>"));
        assert!(!marks.is_mark("<|im_end|>"));
        let channel = Delimiters::of(ToolParser::Gemma, ReasoningParser::ThoughtChannel);
        assert!(channel.is_mark("<|channel>") && channel.is_mark("<|\"|>"));
    }
}
