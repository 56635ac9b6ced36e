//! Anthropic's API: `POST /v1/messages` and `POST /v1/messages/count_tokens`.

mod read;
mod write;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::Request;
use axum::response::Response;
use serde_json::json;

use super::constraint::AnswerForm;
use super::error::ApiError;
use super::fields::Fields;
use super::generate::GenerationPlan;
use super::options::{FieldNames, GenerationOptions};
use super::routes::{Caller, Json};
use super::service::{Service, random_id};
use super::{body, sse};

pub(super) async fn create(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let body = body::read(&service, request).await?;
    let plan = service.prepare(body, prepare).await?;
    let format = write::MessageFormat::new(
        random_id("msg_")?,
        service.model.id.clone(),
        caller.request_id.to_string(),
    );
    sse::answer(&service, plan, format, caller).await
}

/// Counts a prompt's tokens without generating anything.
pub(super) async fn count_tokens(
    State(service): State<Arc<Service>>,
    request: Request<Body>,
) -> Result<Json, ApiError> {
    let body = body::read(&service, request).await?;
    let tokens = service
        .prepare(body, |service, body| {
            let body = Json::parse(body)?;
            let fields = Fields::root(&body)?;
            fields.string("model")?;
            read::read_conversation(service, &fields)?.tokens(service)
        })
        .await?;
    Ok(Json(json!({"input_tokens": tokens.len()}).to_string()))
}

fn prepare(service: &Service, body: &[u8]) -> Result<GenerationPlan, ApiError> {
    let body = Json::parse(body)?;
    let fields = Fields::root(&body)?;
    let mut options = GenerationOptions::read(&fields, &service.model, &FieldNames::MESSAGES)?;
    // This API has one answer a request.
    options.n = 1;
    let mut conversation = read::read_conversation(service, &fields)?;
    conversation.form = AnswerForm::of_messages(&fields)?;
    conversation.recall = options.recall();
    let prompt = conversation.prompt(service)?;
    Ok(GenerationPlan { prompts: vec![prompt], options, logprobs: None })
}
