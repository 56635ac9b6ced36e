//! The response object: what was asked, as it was understood, and what came of it.

use serde_json::{Map, Value, json};

use super::super::answer::Usage;
use super::super::error::ApiError;
use super::super::fields::Fields;
use super::super::options::GenerationOptions;
use super::super::service::{Service, now_s};

/// Fields that are shown as they were sent, and what is shown where they were not.
fn echoes() -> [(&'static str, Value); 12] {
    [
        ("instructions", Value::Null),
        ("previous_response_id", Value::Null),
        ("tools", json!([])),
        ("tool_choice", json!("auto")),
        ("truncation", json!("disabled")),
        ("parallel_tool_calls", json!(true)),
        ("max_tool_calls", Value::Null),
        ("store", json!(true)),
        ("metadata", json!({})),
        ("safety_identifier", Value::Null),
        ("prompt_cache_key", Value::Null),
        ("max_output_tokens", Value::Null),
    ]
}

/// A response object without its id, its status and its output.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    fields: Map<String, Value>,
}

/// How far a response has come.
#[derive(Clone, Debug)]
pub(super) enum Status {
    InProgress,
    Completed,
    /// With the reason.
    Incomplete(&'static str),
    Failed {
        code: &'static str,
        message: String,
    },
}

impl Resource {
    /// # Errors
    /// A 400 that names a field of a wrong type.
    pub fn new(
        service: &Service,
        fields: &Fields<'_>,
        options: &GenerationOptions,
        logprobs: Option<u32>,
    ) -> Result<Self, ApiError> {
        let sampling = &options.sampling;
        let mut shown = Map::new();
        shown.insert("created_at".to_owned(), now_s().into());
        shown.insert("model".to_owned(), service.model.id.as_str().into());
        for (name, absent) in echoes() {
            shown.insert(name.to_owned(), fields.get(name).cloned().unwrap_or(absent));
        }
        if let Some(tools) = shown.get_mut("tools").and_then(Value::as_array_mut) {
            tools.iter_mut().for_each(complete_function);
        }
        let text = fields.object("text")?;
        let verbosity = text.as_ref().map(|text| text.string("verbosity")).transpose()?.flatten();
        let format = text.as_ref().and_then(|text| text.get("format")).cloned();
        let format = format.unwrap_or_else(|| json!({"type": "text"}));
        let reasoning = fields.object("reasoning")?;
        let effort = reasoning.as_ref().and_then(|reasoning| reasoning.get("effort")).cloned();
        let summary = reasoning.as_ref().and_then(|reasoning| reasoning.get("summary")).cloned();
        let rest = json!({
            "text": {"format": format, "verbosity": verbosity.unwrap_or("medium")},
            "reasoning": {"effort": effort, "summary": summary},
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "top_logprobs": logprobs.unwrap_or(0),
            "background": false,
            "service_tier": "default",
        });
        shown.extend(rest.as_object().cloned().unwrap_or_default());
        Ok(Self { fields: shown })
    }

    /// The whole object.
    pub fn json(&self, id: &str, status: &Status, output: &[Value], usage: Option<Usage>) -> Value {
        let completed_s = matches!(status, Status::Completed).then(now_s);
        let (name, reason, error) = match status {
            Status::InProgress => ("in_progress", None, Value::Null),
            Status::Completed => ("completed", None, Value::Null),
            Status::Incomplete(reason) => ("incomplete", Some(json!({"reason": reason})), Value::Null),
            Status::Failed { code, message } => ("failed", None, json!({"code": code, "message": message})),
        };
        let mut object = json!({
            "id": id,
            "object": "response",
            "status": name,
            "completed_at": completed_s,
            "incomplete_details": reason,
            "error": error,
            "output": output,
            "usage": usage.map(usage_json),
        });
        let all = object.as_object_mut().expect("it was written as one");
        all.extend(self.fields.clone());
        object
    }
}

/// A function is shown with all fields that it may have; strict clients miss them otherwise.
fn complete_function(tool: &mut Value) {
    if let Some(fields) = tool.as_object_mut().filter(|fields| fields.get("type") == Some(&json!("function")))
    {
        for name in ["description", "parameters", "strict"] {
            fields.entry(name).or_insert(Value::Null);
        }
    }
}

fn usage_json(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    })
}
