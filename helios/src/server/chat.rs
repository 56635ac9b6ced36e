//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::fields::{Fields, invalid, unsupported, wrong_type};
use super::generate::{ChoiceEvent, Finish, GenerationPlan, Prompt, Running, Usage};
use super::options::GenerationOptions;
use super::routes::{Json, RequestId};
use super::service::{Service, now_s, random_id};
use super::sse::{self, ChunkFormat};
use super::{body, logprobs, messages};
use crate::text::{Rendering, SpecialTokens, TemplateInput};

pub(super) async fn create(
    State(service): State<Arc<Service>>,
    Extension(id): Extension<RequestId>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let body = body::read(&service, request).await?;
    let plan = service.prepare(body, prepare).await?;
    let (stream, include_usage) = (plan.options.stream, plan.options.include_usage);
    let format = ChatFormat {
        id: random_id("chatcmpl-")?,
        created_s: now_s(),
        model: service.model.id.clone(),
        fingerprint: service.model.fingerprint.clone(),
        logprobs: plan.logprobs.is_some(),
        include_usage,
    };
    let running = Running::start(&service, plan).await?;
    if stream {
        return Ok(sse::response(running, format, include_usage, id));
    }
    Ok(Json(format.whole(running).await?).into_response())
}

/// Checks a body, renders its conversation and tokenizes it.
fn prepare(service: &Service, body: &[u8]) -> Result<GenerationPlan, ApiError> {
    let body = Json::parse(body)?;
    let fields = Fields::root(&body)?;
    service.model.check_name(fields.string("model")?)?;
    check_outputs(&fields)?;
    let options = GenerationOptions::read(&fields, &service.model, 1)?;
    let logprobs = read_logprobs(&fields, service.model.limits.logprobs_max)?;
    let prompt = tokenize(service, &fields)?;
    Ok(GenerationPlan { prompts: vec![prompt], options, logprobs })
}

/// Outputs other than free text.
fn check_outputs(fields: &Fields<'_>) -> Result<(), ApiError> {
    if let Some(format) = fields.object("response_format")?
        && format.string("type")?.is_some_and(|kind| kind != "text")
    {
        return Err(unsupported(
            "response_format",
            "only type 'text' is served; output cannot be constrained",
        ));
    }
    let modalities = fields.array("modalities")?.unwrap_or_default();
    if fields.get("audio").is_some() || modalities.iter().any(|modality| modality != "text") {
        return Err(unsupported("modalities", "only 'text' is served"));
    }
    Ok(())
}

fn read_logprobs(fields: &Fields<'_>, logprobs_max: u32) -> Result<Option<u32>, ApiError> {
    let wanted = fields.boolean("logprobs")?.unwrap_or(false);
    let alternatives = fields.integer("top_logprobs", 0..=i64::from(logprobs_max))?;
    match (wanted, alternatives) {
        (true, alternatives) => Ok(Some(alternatives.unwrap_or(0) as u32)),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(invalid("top_logprobs", "it needs `logprobs: true`")),
    }
}

fn tokenize(service: &Service, fields: &Fields<'_>) -> Result<Prompt, ApiError> {
    let messages = messages::read_messages(fields)?;
    let tools = messages::read_tools(fields)?;
    let none = Map::new();
    let extra = match fields.get("chat_template_kwargs") {
        None => &none,
        Some(Value::Object(extra)) => extra,
        Some(other) => return Err(wrong_type("chat_template_kwargs", "an object", other)),
    };
    let continue_final = fields.boolean("continue_final_message")?.unwrap_or(false);
    let add_generation_prompt = fields.boolean("add_generation_prompt")?;
    let input = TemplateInput {
        messages: &messages,
        tools,
        add_generation_prompt: add_generation_prompt.unwrap_or(true),
        extra,
    };
    let Rendering { text, marks } = if continue_final {
        if add_generation_prompt == Some(true) {
            let requirement = "a message is either continued or followed by a new one; send only one of \
                               'continue_final_message' and 'add_generation_prompt'";
            return Err(invalid("continue_final_message", requirement));
        }
        let last = messages
            .last()
            .filter(|message| message["role"] == "assistant")
            .ok_or_else(|| invalid("continue_final_message", "the final message must be the assistant's"))?;
        service.text.template.render_to_continue(&input, last["content"].as_str().unwrap_or_default())?
    } else {
        service.text.template.render(&input)?
    };
    // The template writes its special tokens itself; adding more would double them.
    let special = match fields.boolean("add_special_tokens")? {
        Some(true) => SpecialTokens::Add,
        _ => SpecialTokens::AsWritten,
    };
    let encoded = service
        .text
        .tokenizer
        .encode_marked(&text, special, &marks)
        .map_err(|error| ApiError::tokenizing("messages", &error))?;
    service.check_prompt("messages", &encoded.tokens)?;
    Ok(Prompt { tokens: encoded.tokens.into(), endpoints: encoded.endpoints.into() })
}

struct ChatFormat {
    id: String,
    created_s: u64,
    model: String,
    fingerprint: String,
    logprobs: bool,
    include_usage: bool,
}

impl ChatFormat {
    async fn whole(&self, mut running: Running) -> Result<String, ApiError> {
        let answers = running.whole().await?;
        let tokenizer = &running.service().text.tokenizer;
        let choices: Vec<Value> = answers
            .iter()
            .enumerate()
            .map(|(index, answer)| {
                json!({
                    "index": index,
                    "message": {"role": "assistant", "content": answer.text, "refusal": null},
                    "logprobs": self.logprobs.then(|| logprobs::chat(tokenizer, &answer.tokens)),
                    "finish_reason": answer.finish.as_str(),
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

    fn envelope(&self, choices: Value, usage: Value) -> String {
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
        chunk.to_string()
    }

    fn one(&self, index: usize, delta: Value, logprobs: Value, finish: Option<Finish>) -> String {
        let finish = finish.map(Finish::as_str);
        let choice = json!([{"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]);
        self.envelope(choice, Value::Null)
    }
}

impl ChunkFormat for ChatFormat {
    fn opening(&self, index: usize) -> Option<String> {
        let delta = json!({"role": "assistant", "content": "", "refusal": null});
        Some(self.one(index, delta, Value::Null, None))
    }

    fn chunk(&self, running: &Running, index: usize, event: &ChoiceEvent) -> String {
        match event {
            ChoiceEvent::Delta { text, tokens } => {
                let logprobs = match self.logprobs {
                    true => logprobs::chat(&running.service().text.tokenizer, tokens),
                    false => Value::Null,
                };
                self.one(index, json!({"content": text}), logprobs, None)
            }
            ChoiceEvent::Finished(finish) => self.one(index, json!({}), Value::Null, Some(*finish)),
        }
    }

    fn usage(&self, usage: Usage) -> String {
        self.envelope(json!([]), usage.json())
    }
}
