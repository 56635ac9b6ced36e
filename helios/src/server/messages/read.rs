//! Reading Anthropic's `system`, `messages`, `tools` and `tool_choice` into a conversation.
//!
//! Content blocks become messages: texts are joined by line feeds, `thinking` is the assistant's reasoning, `tool_use` its
//! calls, and every `tool_result` a message of its own. Blocks and tools that only Anthropic's servers can serve are skipped.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::super::content::{Images, Part, joined, parts, read_text, refused};
use super::super::conversation::{
    AssistantTurn, Conversation, Ending, MESSAGES_MAX, TOOLS_MAX, set_effort, tool_message,
};
use super::super::error::ApiError;
use super::super::fields::{Fields, invalid, missing};
use super::super::selection::ToolSelection;
use super::super::service::Service;
use crate::parse::ToolChoice;

/// A block that changes with every request and would keep it from sharing its prefix with the one before.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// Reads the fields that make up a conversation.
///
/// # Errors
/// A 400 that names the field.
pub(super) fn read_conversation(service: &Service, fields: &Fields<'_>) -> Result<Conversation, ApiError> {
    let mut reader = Reader::default();
    if let Some(system) = fields.get("system") {
        let text = read_system(system, "system")?;
        if !text.is_empty() {
            reader.messages.push(json!({"role": "system", "content": text}));
        }
    }
    let messages = fields.array_within("messages", MESSAGES_MAX)?.ok_or_else(|| missing("messages"))?;
    if messages.is_empty() {
        return Err(invalid("messages", "there must be at least one message"));
    }
    for (index, message) in messages.iter().enumerate() {
        reader.read_message(&Fields::at(message, format!("messages[{index}]"))?)?;
    }
    let mut conversation = Conversation::new("messages", reader.messages);
    if conversation.messages.last().is_some_and(is_prefill) {
        conversation.ending = Ending::Continuation;
    }
    let (selection, parallel_calls) = read_tool_choice(fields)?;
    conversation.select_tools(service, read_tools(fields)?, selection)?;
    conversation.parallel_calls = parallel_calls;
    read_thinking(fields, &mut conversation)?;
    Ok(conversation)
}

/// Whether a final message begins the answer. One with calls is complete.
fn is_prefill(message: &Value) -> bool {
    message["role"] == "assistant" && message.get("tool_calls").is_none()
}

#[derive(Default)]
struct Reader {
    messages: Vec<Value>,
    /// Names of the tools that were called, by the calls' ids.
    called: HashMap<String, String>,
}

impl Reader {
    fn read_message(&mut self, fields: &Fields<'_>) -> Result<(), ApiError> {
        let role = fields.required("role")?;
        let path = fields.path("content");
        let content = fields.get("content").ok_or_else(|| missing(&path))?;
        match role {
            "system" => {
                let text = read_system(content, &path)?;
                self.messages.push(json!({"role": "system", "content": text}));
                Ok(())
            }
            "user" => self.read_user(content, &path),
            "assistant" => self.read_assistant(content, &path),
            _ => {
                let requirement = format!("'{role}' is not one of 'user', 'assistant' and 'system'");
                Err(invalid(&fields.path("role"), &requirement))
            }
        }
    }

    fn read_user(&mut self, content: &Value, path: &str) -> Result<(), ApiError> {
        let mut texts: Vec<&str> = Vec::new();
        for part in parts(content, path)? {
            match part {
                Part::Text(text) => texts.push(text),
                Part::Other { kind: "tool_result", fields } => {
                    self.flush_user(&mut texts);
                    self.read_result(&fields)?;
                }
                Part::Other { kind, fields } => return Err(refused(kind, &fields)),
            }
        }
        self.flush_user(&mut texts);
        Ok(())
    }

    fn flush_user(&mut self, texts: &mut Vec<&str>) {
        if !texts.is_empty() {
            self.messages.push(json!({"role": "user", "content": texts.join("\n")}));
            texts.clear();
        }
    }

    fn read_result(&mut self, fields: &Fields<'_>) -> Result<(), ApiError> {
        let id = fields.required("tool_use_id")?;
        let path = fields.path("content");
        let text = match fields.get("content") {
            None => String::new(),
            Some(content) => read_text(content, &path, Images::Named)?,
        };
        let failed = fields.boolean("is_error")?.unwrap_or(false);
        let text = if failed { format!("Error: {text}") } else { text };
        let name = self.called.get(id).map(String::as_str);
        self.messages.push(tool_message(id, name, &text));
        Ok(())
    }

    fn read_assistant(&mut self, content: &Value, path: &str) -> Result<(), ApiError> {
        let mut turn = AssistantTurn::default();
        for part in parts(content, path)? {
            match part {
                Part::Text(text) => turn.texts.push(text.to_owned()),
                Part::Other { kind: "thinking", fields } => {
                    turn.reasoning.push_str(fields.required("thinking")?);
                }
                Part::Other { kind: "tool_use", fields } => self.read_call(&fields, &mut turn)?,
                // Redacted thinking, and what Anthropic's own tools did.
                Part::Other { .. } => {}
            }
        }
        self.messages.push(turn.message());
        Ok(())
    }

    fn read_call(&mut self, fields: &Fields<'_>, turn: &mut AssistantTurn) -> Result<(), ApiError> {
        let id = fields.required("id")?;
        let name = fields.required("name")?;
        let input =
            fields.object("input")?.map_or_else(|| json!({}), |input| input.object_map().clone().into());
        turn.call(id, name, input);
        self.called.insert(id.to_owned(), name.to_owned());
        Ok(())
    }
}

/// A system text, without the block that changes with every request.
fn read_system(content: &Value, path: &str) -> Result<String, ApiError> {
    let mut parts = parts(content, path)?;
    parts.retain(|part| !matches!(part, Part::Text(text) if text.starts_with(BILLING_HEADER)));
    joined(&parts, Images::Refused)
}

/// Tools in the shape that templates take. A tool of another type than `custom` is one of Anthropic's servers.
fn read_tools(fields: &Fields<'_>) -> Result<Vec<Value>, ApiError> {
    let mut tools = Vec::new();
    for (index, tool) in fields.array_within("tools", TOOLS_MAX)?.unwrap_or_default().iter().enumerate() {
        let tool = Fields::at(tool, format!("tools[{index}]"))?;
        if tool.string("type")?.is_some_and(|kind| kind != "custom") {
            continue;
        }
        tool.boolean("strict")?;
        let mut function = json!({"name": tool.required("name")?});
        if let Some(description) = tool.string("description")? {
            function["description"] = description.into();
        }
        if let Some(schema) = tool.object("input_schema")? {
            function["parameters"] = schema.object_map().clone().into();
        }
        tools.push(json!({"type": "function", "function": function}));
    }
    Ok(tools)
}

/// The selection, and whether an answer may have several calls.
fn read_tool_choice(fields: &Fields<'_>) -> Result<(ToolSelection, bool), ApiError> {
    let Some(choice) = fields.object("tool_choice")? else {
        return Ok((ToolSelection::AUTO, true));
    };
    let selection = match choice.required("type")? {
        "auto" => ToolSelection::AUTO,
        "any" => ToolSelection::of(ToolChoice::Required),
        "tool" => ToolSelection::of(ToolChoice::Named(choice.required("name")?.to_owned())),
        "none" => ToolSelection::None,
        other => {
            let requirement = format!("'{other}' is not one of 'auto', 'any', 'tool' and 'none'");
            return Err(invalid(&choice.path("type"), &requirement));
        }
    };
    Ok((selection, !choice.boolean("disable_parallel_tool_use")?.unwrap_or(false)))
}

/// Whether and how much to reason, in the terms of templates. What is not asked for is left to the template.
fn read_thinking(fields: &Fields<'_>, conversation: &mut Conversation) -> Result<(), ApiError> {
    if let Some(output) = fields.object("output_config")?
        && let Some(effort) = output.string("effort")?
    {
        set_effort(&mut conversation.variables, effort);
    }
    if let Some(thinking) = fields.object("thinking")? {
        let enabled = thinking.string("type")?.is_none_or(|kind| kind != "disabled");
        conversation.variables.insert("enable_thinking".to_owned(), enabled.into());
    }
    Ok(())
}
