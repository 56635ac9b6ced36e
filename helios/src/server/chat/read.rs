//! Reading chat completions' `messages`, `tools` and `tool_choice`.
//!
//! Content becomes one text (parts are joined by line feeds), `developer` becomes `system`, and a tool call's arguments
//! become the object that they spell. All other fields pass through, because templates read more than this server does.

use serde_json::{Map, Value};

use super::super::content::{Images, read_text};
use super::super::conversation::{MESSAGES_MAX, TOOLS_MAX, set_reasoning, spelled_arguments};
use super::super::error::ApiError;
use super::super::fields::{Fields, invalid, missing, unsupported};
use super::super::selection::ToolSelection;
use crate::parse::ToolChoice;

/// Reads `messages`.
///
/// # Errors
/// A 400 that names the field.
pub(in crate::server) fn read_messages(fields: &Fields<'_>) -> Result<Vec<Value>, ApiError> {
    let messages = fields.array_within("messages", MESSAGES_MAX)?.ok_or_else(|| missing("messages"))?;
    if messages.is_empty() {
        return Err(invalid("messages", "there must be at least one message"));
    }
    messages.iter().enumerate().map(|(index, message)| read_message(message, index)).collect()
}

/// Reads `tools`.
///
/// # Errors
/// A 400 that names the field.
pub(in crate::server) fn read_tools(fields: &Fields<'_>) -> Result<Vec<Value>, ApiError> {
    let tools = fields.array_within("tools", TOOLS_MAX)?.unwrap_or_default();
    for (index, tool) in tools.iter().enumerate() {
        let tool = Fields::at(tool, format!("tools[{index}]"))?;
        if let Some(function) = tool.object("function")? {
            function.string("name")?;
            function.boolean("strict")?;
        }
    }
    Ok(tools.to_vec())
}

/// Reads `tool_choice`.
///
/// # Errors
/// A 400 that names the field.
pub(super) fn read_tool_choice(fields: &Fields<'_>) -> Result<ToolSelection, ApiError> {
    let choice = match fields.get("tool_choice") {
        None => return Ok(ToolSelection::AUTO),
        Some(Value::String(mode)) => return ToolSelection::of_mode(mode, "tool_choice"),
        Some(choice) => Fields::at(choice, "tool_choice".to_owned())?,
    };
    if let Some(allowed) = choice.object("allowed_tools")? {
        return ToolSelection::read_allowed(&allowed, |tool| {
            let function = tool.object("function")?.ok_or_else(|| missing(&tool.path("function")))?;
            Ok(function.required("name")?.to_owned())
        });
    }
    match choice.object("function")? {
        Some(function) => Ok(ToolSelection::of(ToolChoice::Named(function.required("name")?.to_owned()))),
        None => Err(unsupported("tool_choice", "as an object it names a function, or allowed tools")),
    }
}

fn read_message(message: &Value, index: usize) -> Result<Value, ApiError> {
    let fields = Fields::at(message, format!("messages[{index}]"))?;
    let role = fields.required("role")?;
    let role = match role {
        "developer" => "system",
        "system" | "user" | "assistant" | "tool" => role,
        _ => {
            let requirement =
                format!("'{role}' is not one of 'system', 'developer', 'user', 'assistant' and 'tool'");
            return Err(invalid(&fields.path("role"), &requirement));
        }
    };
    let content = match fields.get("content") {
        Some(content) => {
            let images = if role == "tool" { Images::Named } else { Images::Refused };
            read_text(content, &fields.path("content"), images)?
        }
        // Templates join content as text, and an assistant's turn may consist of tool calls alone.
        None if role == "assistant" => String::new(),
        None => return Err(missing(&fields.path("content"))),
    };
    let mut normal: Map<String, Value> = Map::new();
    for (name, value) in fields.object_map().iter().filter(|(_, value)| !value.is_null()) {
        normal.insert(name.clone(), value.clone());
    }
    normal.insert("role".to_owned(), role.into());
    normal.insert("content".to_owned(), content.into());
    if let Some(calls) = fields.array("tool_calls")? {
        let calls = calls.iter().enumerate().map(|(call_index, call)| {
            read_tool_call(call, format!("{}[{call_index}]", fields.path("tool_calls")))
        });
        normal.insert("tool_calls".to_owned(), Value::Array(calls.collect::<Result<_, _>>()?));
    }
    let mut normal = Value::Object(normal);
    if role == "assistant" {
        let reasoning = fields.string("reasoning_content")?.or(fields.string("reasoning")?);
        set_reasoning(&mut normal, reasoning.unwrap_or_default().to_owned());
    }
    Ok(normal)
}

fn read_tool_call(call: &Value, path: String) -> Result<Value, ApiError> {
    let fields = Fields::at(call, path)?;
    let Some(function) = fields.object("function")? else { return Ok(call.clone()) };
    let Some(Value::String(spelled)) = function.get("arguments") else { return Ok(call.clone()) };
    let arguments = spelled_arguments(spelled, &function.path("arguments"))?;
    let mut call = call.clone();
    call["function"]["arguments"] = arguments;
    Ok(call)
}
