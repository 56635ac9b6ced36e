//! An answer as the responses API spells it: a response with output items, whole or in events.

use serde_json::{Value, json};

use super::super::answer::{ChoiceEvent, Finish, Usage};
use super::super::conversation::AssistantTurn;
use super::super::error::ApiError;
use super::super::generate::Running;
use super::super::logprobs;
use super::super::service::Service;
use super::super::sse::{AnswerFormat, Frames};
use super::History;
use super::resource::{Resource, Status};
use super::tools::ToolNames;
use crate::parse::OutputEvent;

pub(super) struct ResponseFormat {
    /// Random; the ids of the response and its items are made from it.
    base: String,
    resource: Resource,
    names: ToolNames,
    history: Option<History>,
    /// Finished items.
    output: Vec<Value>,
    open: Option<OpenItem>,
    /// The answer as a message of the conversation.
    turn: AssistantTurn,
    finish: Option<Finish>,
    events: u64,
}

/// The item that is written to.
struct OpenItem {
    kind: ItemKind,
    item: Value,
    text: String,
    /// Of the text's tokens, if they are asked for.
    logprobs: Vec<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemKind {
    Message,
    Reasoning,
    Call,
}

impl ResponseFormat {
    pub fn new(base: String, resource: Resource, names: ToolNames, history: Option<History>) -> Self {
        Self {
            base,
            resource,
            names,
            history,
            output: Vec::new(),
            open: None,
            turn: AssistantTurn::default(),
            finish: None,
            events: 0,
        }
    }

    fn id(&self) -> String {
        format!("resp_{}", self.base)
    }

    /// The id of the item that comes next, or of the open one.
    fn item_id(&self, prefix: &str) -> String {
        format!("{prefix}_{}{:02x}", self.base, self.output.len())
    }

    fn response(&self, status: &Status, usage: Option<Usage>) -> Value {
        self.resource.json(&self.id(), status, &self.output, usage)
    }

    fn status(&self) -> Status {
        match self.finish {
            Some(Finish::Length | Finish::Context) => Status::Incomplete("max_output_tokens"),
            _ => Status::Completed,
        }
    }

    /// Keeps the response, and the conversation for one that continues it.
    fn keep(&mut self, service: &Service, response: &Value) {
        if let Some(mut history) = self.history.take() {
            history.messages.push(std::mem::take(&mut self.turn).message());
            service.responses.insert(history.client, self.id(), response.to_string(), &history.messages);
        }
    }

    fn send(&mut self, mut event: Value, frames: &mut Frames) {
        event["sequence_number"] = self.events.into();
        self.events += 1;
        frames.event(&event);
    }

    /// An event of the open item.
    fn send_of_item(&mut self, kind: &str, mut event: Value, frames: &mut Frames) {
        let open = self.open.as_ref().expect("an item is open where it is written to");
        event["type"] = kind.into();
        event["item_id"] = open.item["id"].clone();
        event["output_index"] = self.output.len().into();
        self.send(event, frames);
    }

    fn take(&mut self, service: &Service, event: ChoiceEvent, frames: &mut Frames) {
        match event {
            ChoiceEvent::Output { output, tokens } => {
                let logprobs = logprobs::entries(&service.text.tokenizer, &tokens);
                self.take_output(output, logprobs, frames);
            }
            ChoiceEvent::Finished(finish) => {
                self.finish = Some(finish);
                let is_cut_off = matches!(self.status(), Status::Incomplete(_));
                self.close_item(if is_cut_off { "incomplete" } else { "completed" }, frames);
            }
        }
    }

    fn take_output(&mut self, output: OutputEvent, logprobs: Vec<Value>, frames: &mut Frames) {
        match output {
            // Tokens at the end that say nothing; those of a call are not reported here.
            OutputEvent::Text(text) if text.is_empty() && !self.is_open(ItemKind::Message) => {}
            OutputEvent::Text(text) => {
                self.need_message(frames);
                let event = json!({"content_index": 0, "delta": text, "logprobs": logprobs});
                self.write(&text, "response.output_text.delta", event, frames);
                if let Some(open) = &mut self.open {
                    open.logprobs.extend(logprobs);
                }
            }
            OutputEvent::Reasoning(text) => {
                self.need_reasoning(frames);
                let event = json!({"content_index": 0, "delta": text});
                self.write(&text, "response.reasoning_text.delta", event, frames);
            }
            OutputEvent::ToolCallStart { id, name, .. } => self.open_call(&id, &name, frames),
            OutputEvent::ToolCallArguments { delta, .. } => {
                let event = json!({"delta": delta});
                self.write(&delta, "response.function_call_arguments.delta", event, frames);
            }
            OutputEvent::ToolCallEnd { .. } => self.close_item("completed", frames),
        }
    }

    fn write(&mut self, text: &str, kind: &str, event: Value, frames: &mut Frames) {
        self.send_of_item(kind, event, frames);
        let open = self.open.as_mut().expect("an item is open where it is written to");
        open.text.push_str(text);
    }

    fn is_open(&self, kind: ItemKind) -> bool {
        self.open.as_ref().is_some_and(|open| open.kind == kind)
    }

    fn open_item(&mut self, kind: ItemKind, item: Value, frames: &mut Frames) {
        self.close_item("completed", frames);
        let event = json!({
            "type": "response.output_item.added", "output_index": self.output.len(), "item": item,
        });
        self.send(event, frames);
        self.open = Some(OpenItem { kind, item, text: String::new(), logprobs: Vec::new() });
    }

    fn need_message(&mut self, frames: &mut Frames) {
        if self.is_open(ItemKind::Message) {
            return;
        }
        self.close_item("completed", frames);
        let item = json!({
            "id": self.item_id("msg"), "type": "message", "status": "in_progress", "role": "assistant", "content": [],
        });
        self.open_item(ItemKind::Message, item, frames);
        let event = json!({"content_index": 0, "part": text_part("", &[])});
        self.send_of_item("response.content_part.added", event, frames);
    }

    fn need_reasoning(&mut self, frames: &mut Frames) {
        if self.is_open(ItemKind::Reasoning) {
            return;
        }
        self.close_item("completed", frames);
        let item = json!({
            "id": self.item_id("rs"), "type": "reasoning", "status": "in_progress", "summary": [], "content": [],
        });
        self.open_item(ItemKind::Reasoning, item, frames);
    }

    fn open_call(&mut self, call_id: &str, name: &str, frames: &mut Frames) {
        self.close_item("completed", frames);
        let mut item = json!({
            "id": self.item_id("fc"), "type": "function_call", "status": "in_progress", "call_id": call_id,
            "arguments": "",
        });
        self.names.name_item(&mut item, name);
        self.open_item(ItemKind::Call, item, frames);
        self.turn.call(call_id, name, json!({}));
    }

    /// Ends the open item; without its `done` event an item does not exist for some clients.
    fn close_item(&mut self, status: &str, frames: &mut Frames) {
        let Some(OpenItem { kind, .. }) = self.open else { return };
        match kind {
            ItemKind::Message => self.finish_message(frames),
            ItemKind::Reasoning => self.finish_reasoning(frames),
            ItemKind::Call => self.finish_call(frames),
        }
        let OpenItem { mut item, .. } = self.open.take().expect("it was there before its last events");
        item["status"] = status.into();
        let event = json!({
            "type": "response.output_item.done", "output_index": self.output.len(), "item": item,
        });
        self.send(event, frames);
        self.output.push(item);
    }

    fn finish_message(&mut self, frames: &mut Frames) {
        let text = self.take_text();
        let logprobs = self.open.as_mut().map(|open| std::mem::take(&mut open.logprobs)).unwrap_or_default();
        let event = json!({"content_index": 0, "text": text, "logprobs": logprobs});
        self.send_of_item("response.output_text.done", event, frames);
        let part = text_part(&text, &logprobs);
        self.send_of_item("response.content_part.done", json!({"content_index": 0, "part": part}), frames);
        self.set("content", json!([part]));
        self.turn.texts.push(text);
    }

    fn finish_reasoning(&mut self, frames: &mut Frames) {
        let text = self.take_text();
        let event = json!({"content_index": 0, "text": text});
        self.send_of_item("response.reasoning_text.done", event, frames);
        self.set("content", json!([{"type": "reasoning_text", "text": text}]));
        self.turn.reasoning.push_str(&text);
    }

    fn finish_call(&mut self, frames: &mut Frames) {
        let text = self.take_text();
        let name = self.open.as_ref().map(|open| open.item["name"].clone());
        let event = json!({"name": name, "arguments": text});
        self.send_of_item("response.function_call_arguments.done", event, frames);
        if let Some(call) = self.turn.calls.last_mut()
            && let Ok(arguments @ Value::Object(_)) = serde_json::from_str(&text)
        {
            call["function"]["arguments"] = arguments;
        }
        self.set("arguments", text.into());
    }

    fn take_text(&mut self) -> String {
        self.open.as_mut().map(|open| std::mem::take(&mut open.text)).unwrap_or_default()
    }

    fn set(&mut self, field: &str, value: Value) {
        if let Some(open) = &mut self.open {
            open.item[field] = value;
        }
    }
}

impl AnswerFormat for ResponseFormat {
    async fn whole(mut self, mut running: Running) -> Result<String, ApiError> {
        let mut frames = Frames::default();
        while let Some((_, event)) = running.next().await? {
            self.take(running.service(), event, &mut frames);
            frames.clear();
        }
        let response = self.response(&self.status(), Some(running.usage()));
        self.keep(running.service(), &response);
        Ok(response.to_string())
    }

    fn open(&mut self, _: &Running, frames: &mut Frames) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.response(&Status::InProgress, None);
            self.send(json!({"type": kind, "response": response}), frames);
        }
    }

    fn event(&mut self, running: &Running, _: usize, event: ChoiceEvent, frames: &mut Frames) {
        self.take(running.service(), event, frames);
    }

    fn close(&mut self, running: &Running, frames: &mut Frames) {
        let status = self.status();
        let kind = match status {
            Status::Incomplete(_) => "response.incomplete",
            _ => "response.completed",
        };
        let response = self.response(&status, Some(running.usage()));
        self.keep(running.service(), &response);
        self.send(json!({"type": kind, "response": response}), frames);
    }

    fn fail(&mut self, running: &Running, error: &ApiError, frames: &mut Frames) {
        self.close_item("incomplete", frames);
        let code = if error.status().is_server_error() { "server_error" } else { error.code.as_str() };
        let status = Status::Failed { code, message: error.message.clone() };
        let response = self.response(&status, Some(running.usage()));
        self.send(json!({"type": "response.failed", "response": response}), frames);
    }

    /// An event, because some clients take comments for silence.
    fn keep_alive(&mut self, frames: &mut Frames) {
        self.send(json!({"type": "keepalive"}), frames);
    }
}

fn text_part(text: &str, logprobs: &[Value]) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs})
}
