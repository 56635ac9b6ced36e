//! An answer as Anthropic's API spells it: a message of content blocks, whole or in events.

use serde_json::{Value, json};

use super::super::answer::{ChoiceEvent, Finish, Usage};
use super::super::error::ApiError;
use super::super::generate::Running;
use super::super::sse::{AnswerFormat, Frames};
use crate::parse::OutputEvent;

/// Clients hand a thought back with its signature; nothing here needs one, but it must not be empty.
const SIGNATURE: &str = "flare";

pub(super) struct MessageFormat {
    id: String,
    model: String,
    request_id: String,
    /// Content blocks; the last one is written to while `open` is set.
    blocks: Vec<Value>,
    open: Option<OpenBlock>,
    finish: Option<Finish>,
}

/// The kind of the block that is written to, and its text so far.
struct OpenBlock {
    kind: BlockKind,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
    Call,
}

impl MessageFormat {
    pub fn new(id: String, model: String, request_id: String) -> Self {
        Self { id, model, request_id, blocks: Vec::new(), open: None, finish: None }
    }

    /// The message as far as it is written.
    fn message(&self, usage: Value) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": self.blocks,
            "stop_reason": self.finish.as_ref().map(stop_reason),
            "stop_sequence": self.stop_sequence(),
            "usage": usage,
        })
    }

    fn stop_sequence(&self) -> Option<&str> {
        match &self.finish {
            Some(Finish::StopString(stop)) => Some(stop),
            _ => None,
        }
    }

    fn take(&mut self, event: ChoiceEvent, frames: &mut Frames) {
        match event {
            ChoiceEvent::Output { output, .. } => self.take_output(output, frames),
            ChoiceEvent::Finished(finish) => {
                self.close_block(frames);
                self.finish = Some(finish);
            }
        }
    }

    fn take_output(&mut self, output: OutputEvent, frames: &mut Frames) {
        match output {
            OutputEvent::Text(text) => {
                self.need(BlockKind::Text, frames, || json!({"type": "text", "text": ""}));
                self.write(&text, &json!({"type": "text_delta", "text": text}), frames);
            }
            OutputEvent::Reasoning(text) => {
                let block = || json!({"type": "thinking", "thinking": "", "signature": ""});
                self.need(BlockKind::Thinking, frames, block);
                self.write(&text, &json!({"type": "thinking_delta", "thinking": text}), frames);
            }
            OutputEvent::ToolCallStart { id, name, .. } => {
                self.close_block(frames);
                let block = || json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                self.need(BlockKind::Call, frames, block);
            }
            OutputEvent::ToolCallArguments { delta, .. } => {
                self.write(&delta, &json!({"type": "input_json_delta", "partial_json": delta}), frames);
            }
            OutputEvent::ToolCallEnd { .. } => self.close_block(frames),
        }
    }

    /// Opens a block unless one of the kind is open.
    fn need(&mut self, kind: BlockKind, frames: &mut Frames, block: impl FnOnce() -> Value) {
        if self.open.as_ref().is_some_and(|open| open.kind == kind) {
            return;
        }
        self.close_block(frames);
        let block = block();
        frames.event(
            &json!({"type": "content_block_start", "index": self.blocks.len(), "content_block": block}),
        );
        self.blocks.push(block);
        self.open = Some(OpenBlock { kind, text: String::new() });
    }

    fn write(&mut self, text: &str, delta: &Value, frames: &mut Frames) {
        let open = self.open.as_mut().expect("a block is open where something is written to it");
        open.text.push_str(text);
        self.delta(delta, frames);
    }

    fn delta(&self, delta: &Value, frames: &mut Frames) {
        frames.event(&json!({"type": "content_block_delta", "index": self.blocks.len() - 1, "delta": delta}));
    }

    fn close_block(&mut self, frames: &mut Frames) {
        let Some(OpenBlock { kind, text }) = self.open.take() else { return };
        let block = self.blocks.last_mut().expect("an open block is the last one");
        match kind {
            BlockKind::Text => block["text"] = text.into(),
            BlockKind::Thinking => {
                block["thinking"] = text.into();
                block["signature"] = SIGNATURE.into();
                self.delta(&json!({"type": "signature_delta", "signature": SIGNATURE}), frames);
            }
            // Arguments that broke off are no object; the message's stop reason says why.
            BlockKind::Call => block["input"] = serde_json::from_str(&text).unwrap_or_else(|_| json!({})),
        }
        frames.event(&json!({"type": "content_block_stop", "index": self.blocks.len() - 1}));
    }
}

impl AnswerFormat for MessageFormat {
    async fn whole(mut self, mut running: Running) -> Result<String, ApiError> {
        let mut frames = Frames::default();
        while let Some((_, event)) = running.next().await? {
            self.take(event, &mut frames);
            frames.clear();
        }
        Ok(self.message(usage(running.usage())).to_string())
    }

    fn open(&mut self, running: &Running, frames: &mut Frames) {
        let message = self.message(usage(running.usage()));
        frames.event(&json!({"type": "message_start", "message": message}));
        self.keep_alive(frames);
    }

    fn event(&mut self, _: &Running, _: usize, event: ChoiceEvent, frames: &mut Frames) {
        self.take(event, frames);
    }

    fn close(&mut self, running: &Running, frames: &mut Frames) {
        let delta = json!({
            "stop_reason": self.finish.as_ref().map(stop_reason),
            "stop_sequence": self.stop_sequence(),
        });
        frames.event(&json!({"type": "message_delta", "delta": delta, "usage": usage(running.usage())}));
        frames.event(&json!({"type": "message_stop"}));
    }

    fn fail(&mut self, _: &Running, error: &ApiError, frames: &mut Frames) {
        frames.event(&error.anthropic(&self.request_id));
    }

    fn keep_alive(&mut self, frames: &mut Frames) {
        frames.event(&json!({"type": "ping"}));
    }
}

fn stop_reason(finish: &Finish) -> &'static str {
    match finish {
        Finish::End => "end_turn",
        Finish::Calls => "tool_use",
        Finish::StopString(_) => "stop_sequence",
        Finish::Length => "max_tokens",
        Finish::Context => "model_context_window_exceeded",
    }
}

/// The input's three counts add up to the whole prompt.
fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    })
}
