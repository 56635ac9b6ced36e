//! Reading `instructions` and `input` into a conversation.
//!
//! An assistant's reasoning, text and calls are items of their own here and one message to a template, so items that follow
//! each other are gathered until another role speaks. Items of unknown types are skipped: clients replay whatever
//! they were sent by whomever.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::super::content::{Images, read_text};
use super::super::conversation::{
    AssistantTurn, Conversation, MESSAGES_MAX, set_effort, spelled_arguments, tool_message,
};
use super::super::error::ApiError;
use super::super::fields::{Fields, invalid, missing, wrong_type};
use super::super::service::Service;
use super::tools::ToolNames;

pub(super) struct Read {
    pub conversation: Conversation,
    /// The messages without the instructions, which hold for one response alone.
    pub history: Vec<Value>,
}

/// Reads the fields that make up a conversation, which continues `earlier` messages.
///
/// # Errors
/// A 400 that names the field.
pub(super) fn read_conversation(
    service: &Service,
    fields: &Fields<'_>,
    names: &ToolNames,
    earlier: Vec<Value>,
) -> Result<Read, ApiError> {
    let mut reader = Reader { messages: earlier, ..Reader::default() };
    match fields.get("input") {
        None if reader.messages.is_empty() => return Err(missing("input")),
        None => {}
        Some(Value::String(text)) => reader.messages.push(json!({"role": "user", "content": text})),
        Some(Value::Array(_)) => {
            let items = fields.array_within("input", MESSAGES_MAX)?.unwrap_or_default();
            for (index, item) in items.iter().enumerate() {
                reader.read_item(&Fields::at(item, format!("input[{index}]"))?)?;
            }
        }
        Some(other) => return Err(wrong_type("input", "a string or an array of items", other)),
    }
    reader.flush();
    let history = reader.messages;
    let mut messages = history.clone();
    if let Some(instructions) = fields.string("instructions")?.filter(|text| !text.is_empty()) {
        messages.insert(0, json!({"role": "system", "content": instructions}));
    }
    if messages.is_empty() {
        return Err(invalid("input", "there must be at least one message"));
    }
    let mut conversation = Conversation::new("input", messages);
    conversation.select_tools(service, names.definitions(), names.read_choice(fields)?)?;
    conversation.parallel_calls = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
    if let Some(reasoning) = fields.object("reasoning")?
        && let Some(effort) = reasoning.string("effort")?
    {
        set_effort(&mut conversation.variables, effort);
    }
    Ok(Read { conversation, history })
}

#[derive(Default)]
struct Reader {
    messages: Vec<Value>,
    /// The assistant's message that further items may belong to.
    turn: AssistantTurn,
    /// Names of the tools that were called, by the calls' ids.
    called: HashMap<String, String>,
}

impl Reader {
    fn read_item(&mut self, fields: &Fields<'_>) -> Result<(), ApiError> {
        match fields.string("type")? {
            None | Some("message") => self.read_message(fields),
            Some("reasoning") => self.read_reasoning(fields),
            Some("function_call") => self.read_call(fields),
            Some("function_call_output") => self.read_output(fields),
            Some(_) => Ok(()),
        }
    }

    fn read_message(&mut self, fields: &Fields<'_>) -> Result<(), ApiError> {
        let role = fields.required("role")?;
        let path = fields.path("content");
        let content = fields.get("content").ok_or_else(|| missing(&path))?;
        let text = read_text(content, &path, Images::Refused)?;
        let role = match role {
            "assistant" => {
                // What was said after a call is a message of its own.
                if !self.turn.texts.is_empty() || !self.turn.calls.is_empty() {
                    self.flush();
                }
                self.turn.texts.push(text);
                return Ok(());
            }
            "system" | "developer" => "system",
            "user" => "user",
            _ => {
                let requirement =
                    format!("'{role}' is not one of 'user', 'assistant', 'system' and 'developer'");
                return Err(invalid(&fields.path("role"), &requirement));
            }
        };
        self.flush();
        self.messages.push(json!({"role": role, "content": text}));
        Ok(())
    }

    /// The thought itself, or else its summary.
    fn read_reasoning(&mut self, fields: &Fields<'_>) -> Result<(), ApiError> {
        let mut text = String::new();
        for field in ["content", "summary"] {
            if text.is_empty() {
                for (index, part) in fields.array(field)?.unwrap_or_default().iter().enumerate() {
                    let part = Fields::at(part, format!("{}[{index}]", fields.path(field)))?;
                    text.push_str(part.string("text")?.unwrap_or_default());
                }
            }
        }
        if !self.turn.is_empty() {
            self.flush();
        }
        self.turn.reasoning = text;
        Ok(())
    }

    fn read_call(&mut self, fields: &Fields<'_>) -> Result<(), ApiError> {
        let id = fields.required("call_id")?;
        let name = ToolNames::shown(fields.string("namespace")?, fields.required("name")?);
        let arguments =
            spelled_arguments(fields.string("arguments")?.unwrap_or_default(), &fields.path("arguments"))?;
        self.turn.call(id, &name, arguments);
        self.called.insert(id.to_owned(), name);
        Ok(())
    }

    fn read_output(&mut self, fields: &Fields<'_>) -> Result<(), ApiError> {
        let id = fields.required("call_id")?;
        let path = fields.path("output");
        let output = fields.get("output").ok_or_else(|| missing(&path))?;
        let text = read_text(output, &path, Images::Named)?;
        self.flush();
        let name = self.called.get(id).map(String::as_str);
        self.messages.push(tool_message(id, name, &text));
        Ok(())
    }

    fn flush(&mut self) {
        let turn = std::mem::take(&mut self.turn);
        if !turn.is_empty() {
            self.messages.push(turn.message());
        }
    }
}
