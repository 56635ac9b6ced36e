//! An answer as chat completions spell it, whole or in chunks.

use serde_json::{Value, json};

use super::super::answer::{Answer, Call, ChoiceEvent, Finish};
use super::super::error::ApiError;
use super::super::generate::Running;
use super::super::logprobs::{self, TokenReport};
use super::super::sse::{AnswerFormat, Frames};
use crate::parse::OutputEvent;

pub(super) struct ChatFormat {
    pub id: String,
    pub created_s: u64,
    pub model: String,
    pub fingerprint: String,
    pub logprobs: bool,
    pub include_usage: bool,
}

impl ChatFormat {
    fn logprobs(&self, running: &Running, tokens: &[TokenReport]) -> Value {
        match self.logprobs {
            true => logprobs::chat(&running.service().text.tokenizer, tokens),
            false => Value::Null,
        }
    }

    fn envelope(&self, choices: Value, usage: Value) -> Value {
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created_s,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        });
        if self.include_usage {
            chunk["usage"] = usage;
        }
        chunk
    }

    fn one(&self, index: usize, delta: Value, logprobs: Value, finish: Option<&Finish>) -> Value {
        let finish = finish.map(Finish::reason);
        let choice = json!([{"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]);
        self.envelope(choice, Value::Null)
    }
}

impl AnswerFormat for ChatFormat {
    async fn whole(self, mut running: Running) -> Result<String, ApiError> {
        let answers = running.whole().await?;
        let choices: Vec<Value> = answers
            .iter()
            .enumerate()
            .map(|(index, answer)| {
                json!({
                    "index": index,
                    "message": message(answer),
                    "logprobs": self.logprobs(&running, &answer.tokens),
                    "finish_reason": answer.finish.reason(),
                })
            })
            .collect();
        let body = json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created_s,
            "model": self.model,
            "choices": choices,
            "usage": running.usage().json(),
            "system_fingerprint": self.fingerprint,
        });
        Ok(body.to_string())
    }

    fn open(&mut self, running: &Running, frames: &mut Frames) {
        for index in 0..running.choices() {
            let delta = json!({"role": "assistant", "content": "", "refusal": null});
            frames.data(self.one(index, delta, Value::Null, None));
        }
    }

    fn event(&mut self, running: &Running, index: usize, event: ChoiceEvent, frames: &mut Frames) {
        match event {
            ChoiceEvent::Output { output, tokens } => {
                let delta = delta(output).or((!tokens.is_empty()).then(|| json!({})));
                if let Some(delta) = delta {
                    frames.data(self.one(index, delta, self.logprobs(running, &tokens), None));
                }
            }
            ChoiceEvent::Finished(finish) => {
                frames.data(self.one(index, json!({}), Value::Null, Some(&finish)));
            }
        }
    }

    fn close(&mut self, running: &Running, frames: &mut Frames) {
        if self.include_usage {
            frames.data(self.envelope(json!([]), running.usage().json()));
        }
        frames.data("[DONE]");
    }

    fn fail(&mut self, _: &Running, error: &ApiError, frames: &mut Frames) {
        frames.data(error.body());
    }

    /// Comments alone: clients of this API read every event as a chunk.
    fn keep_alive(&mut self, frames: &mut Frames) {
        frames.comment("keepalive");
    }
}

fn message(answer: &Answer) -> Value {
    // A turn of calls alone has no content, which is not the same as an empty one.
    let content = match answer.text.as_str() {
        "" if !answer.calls.is_empty() => Value::Null,
        text => text.into(),
    };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !answer.reasoning.is_empty() {
        message["reasoning_content"] = answer.reasoning.as_str().into();
        message["reasoning"] = answer.reasoning.as_str().into();
    }
    if !answer.calls.is_empty() {
        message["tool_calls"] = answer.calls.iter().map(call).collect();
    }
    message
}

fn call(call: &Call) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    json!({"id": call.id, "type": "function", "function": function})
}

/// What a chunk says of one event; nothing at a call's end.
fn delta(output: OutputEvent) -> Option<Value> {
    Some(match output {
        OutputEvent::Text(text) => json!({"content": text}),
        OutputEvent::Reasoning(text) => json!({"reasoning_content": text, "reasoning": text}),
        OutputEvent::ToolCallStart { index, id, name } => {
            let function = json!({"name": name, "arguments": ""});
            json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
        }
        OutputEvent::ToolCallArguments { index, delta } => {
            json!({"tool_calls": [{"index": index, "function": {"arguments": delta}}]})
        }
        OutputEvent::ToolCallEnd { .. } => return None,
    })
}
