//! A conversation as a chat template takes it, from the API's `messages` and `tools`.
//!
//! Content becomes one text (parts are joined by line feeds), `developer` becomes `system`, and a tool call's arguments
//! become the object that they spell. All other fields pass through, because templates read more than this server does.

use serde_json::{Map, Value};

use super::error::ApiError;
use super::fields::{Fields, invalid, missing, unsupported, wrong_type};

/// Reads `messages`.
///
/// # Errors
/// A 400 that names the field.
pub(super) fn read_messages(fields: &Fields<'_>) -> Result<Vec<Value>, ApiError> {
    let messages = fields.array("messages")?.ok_or_else(|| missing("messages"))?;
    if messages.is_empty() {
        return Err(invalid("messages", "there must be at least one message"));
    }
    messages.iter().enumerate().map(|(index, message)| read_message(message, index)).collect()
}

/// Reads `tools`; `None` if there are none to render.
///
/// # Errors
/// A 400 that names the field, also for a `tool_choice` that would have to be enforced.
pub(super) fn read_tools<'a>(fields: &Fields<'a>) -> Result<Option<&'a [Value]>, ApiError> {
    let tools = fields.array("tools")?.filter(|tools| !tools.is_empty());
    for (index, tool) in tools.unwrap_or_default().iter().enumerate() {
        if !tool.is_object() {
            return Err(wrong_type(&format!("tools[{index}]"), "an object", tool));
        }
    }
    match fields.get("tool_choice") {
        None => Ok(tools),
        Some(Value::String(choice)) if choice == "auto" => Ok(tools),
        Some(Value::String(choice)) if choice == "none" => Ok(None),
        Some(_) => {
            let reason = "the model's answers are not read for tool calls, so none can be required; use 'auto' or 'none'";
            Err(unsupported("tool_choice", reason))
        }
    }
}

fn read_message(message: &Value, index: usize) -> Result<Value, ApiError> {
    let fields = Fields::at(message, format!("messages[{index}]"))?;
    let role = fields.string("role")?.ok_or_else(|| missing(&fields.path("role")))?;
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
        Some(content) => read_content(content, &fields.path("content"))?,
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
    Ok(Value::Object(normal))
}

fn read_content(content: &Value, path: &str) -> Result<String, ApiError> {
    let parts = match content {
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) => parts,
        other => return Err(wrong_type(path, "a string or an array of parts", other)),
    };
    let mut texts = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let fields = Fields::at(part, format!("{path}[{index}]"))?;
        let name = match fields.string("type")? {
            Some("text") => "text",
            Some("refusal") => "refusal",
            Some(kind) => {
                let reason = format!("this model takes text alone, not parts of type '{kind}'");
                return Err(unsupported(&fields.path("type"), &reason));
            }
            None => return Err(missing(&fields.path("type"))),
        };
        texts.push(fields.string(name)?.ok_or_else(|| missing(&fields.path(name)))?);
    }
    Ok(texts.join("\n"))
}

fn read_tool_call(call: &Value, path: String) -> Result<Value, ApiError> {
    let fields = Fields::at(call, path)?;
    let Some(function) = fields.object("function")? else { return Ok(call.clone()) };
    let Some(Value::String(spelled)) = function.get("arguments") else { return Ok(call.clone()) };
    let arguments: Value = match serde_json::from_str(spelled) {
        _ if spelled.trim().is_empty() => Value::Object(Map::new()),
        Ok(arguments @ Value::Object(_)) => arguments,
        _ => return Err(invalid(&function.path("arguments"), "it must spell a JSON object")),
    };
    let mut call = call.clone();
    call["function"]["arguments"] = arguments;
    Ok(call)
}
