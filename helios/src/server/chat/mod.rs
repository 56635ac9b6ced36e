//! `POST /v1/chat/completions`.

mod read;
mod write;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::Request;
use axum::response::Response;
use serde_json::Value;

use super::constraint::AnswerForm;
use super::conversation::{Conversation, Ending, set_effort};
use super::error::ApiError;
use super::fields::{Fields, invalid, unsupported, wrong_type};
use super::generate::GenerationPlan;
use super::options::{FieldNames, GenerationOptions};
use super::routes::{Caller, Json};
use super::service::{Service, now_s, random_id};
use super::{body, sse};
use crate::text::SpecialTokens;

pub(super) async fn create(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let body = body::read(&service, request).await?;
    let plan = service.prepare(body, prepare).await?;
    let format = write::ChatFormat {
        id: random_id("chatcmpl-")?,
        created_s: now_s(),
        model: service.model.id.clone(),
        fingerprint: service.model.fingerprint.clone(),
        logprobs: plan.logprobs.is_some(),
        include_usage: plan.options.include_usage,
    };
    sse::answer(&service, plan, format, caller).await
}

/// Reads the fields that make up a conversation.
///
/// # Errors
/// A 400 that names the field.
pub(super) fn read_conversation(service: &Service, fields: &Fields<'_>) -> Result<Conversation, ApiError> {
    let mut conversation = Conversation::new("messages", read::read_messages(fields)?);
    conversation.select_tools(service, read::read_tools(fields)?, read::read_tool_choice(fields)?)?;
    conversation.parallel_calls = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
    if let Some(effort) = fields.string("reasoning_effort")? {
        set_effort(&mut conversation.variables, effort);
    }
    match fields.get("chat_template_kwargs") {
        None => {}
        Some(Value::Object(variables)) => conversation.variables.extend(variables.clone()),
        Some(other) => return Err(wrong_type("chat_template_kwargs", "an object", other)),
    }
    conversation.ending = read_ending(fields, &conversation.messages)?;
    if fields.boolean("add_special_tokens")? == Some(true) {
        conversation.special = SpecialTokens::Add;
    }
    Ok(conversation)
}

/// Checks a body, renders its conversation and tokenizes it.
fn prepare(service: &Service, body: &[u8]) -> Result<GenerationPlan, ApiError> {
    let body = Json::parse(body)?;
    let fields = Fields::root(&body)?;
    check_outputs(&fields)?;
    let options = GenerationOptions::read(&fields, &service.model, &FieldNames::CHAT)?;
    let logprobs = read_logprobs(&fields, service.model.limits.logprobs_max)?;
    let mut conversation = read_conversation(service, &fields)?;
    conversation.form = AnswerForm::of_completions(&fields)?;
    conversation.recall = options.recall();
    let prompt = conversation.prompt(service)?;
    Ok(GenerationPlan { prompts: vec![prompt], options, logprobs })
}

/// Outputs other than text.
fn check_outputs(fields: &Fields<'_>) -> Result<(), ApiError> {
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

fn read_ending(fields: &Fields<'_>, messages: &[Value]) -> Result<Ending, ApiError> {
    let add_generation_prompt = fields.boolean("add_generation_prompt")?;
    if !fields.boolean("continue_final_message")?.unwrap_or(false) {
        return Ok(if add_generation_prompt.unwrap_or(true) { Ending::Answer } else { Ending::Messages });
    }
    if add_generation_prompt == Some(true) {
        let requirement = "a message is either continued or followed by a new one; send only one of \
                           'continue_final_message' and 'add_generation_prompt'";
        return Err(invalid("continue_final_message", requirement));
    }
    match messages.last() {
        Some(last) if last["role"] == "assistant" => Ok(Ending::Continuation),
        _ => Err(invalid("continue_final_message", "the final message must be the assistant's")),
    }
}
