//! `GET /v1/models` and `GET /v1/models/{id}`, in Anthropic's shape for its clients and in OpenAI's for all others.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::error::{ApiError, ErrorCode};
use super::routes::Json;
use super::service::{ModelProfile, Service};

pub(super) async fn list(State(service): State<Arc<Service>>, headers: HeaderMap) -> Json {
    let id = &service.model.id;
    let list = if is_anthropic(&headers) {
        json!({"data": [anthropic_card(&service.model)], "has_more": false, "first_id": id, "last_id": id})
    } else {
        json!({"object": "list", "data": [card(&service.model)]})
    };
    Json(list.to_string())
}

/// The model of an id: the whole one, or its last part.
pub(super) async fn retrieve(
    State(service): State<Arc<Service>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json, ApiError> {
    let model = &service.model;
    if id != model.id && Some(id.as_str()) != model.id.rsplit('/').next() {
        let message = format!("The model '{id}' does not exist; this server serves '{}'.", model.id);
        return Err(ApiError::of(ErrorCode::ModelNotFound, "model", message));
    }
    let card = if is_anthropic(&headers) { anthropic_card(model) } else { card(model) };
    Ok(Json(card.to_string()))
}

/// Whether a client of Anthropic's API asks at a path that both APIs have.
pub(super) fn is_anthropic(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version")
}

fn card(model: &ModelProfile) -> Value {
    json!({
        "id": model.id,
        "object": "model",
        "created": model.created_s,
        "owned_by": "flare",
        "max_model_len": model.limits.context_tokens_max,
    })
}

fn anthropic_card(model: &ModelProfile) -> Value {
    let created = i64::try_from(model.created_s).ok().and_then(|second| Timestamp::from_second(second).ok());
    json!({
        "type": "model",
        "id": model.id,
        "display_name": model.id,
        "lifecycle": "active",
        "created_at": created.unwrap_or_default().to_string(),
        "max_input_tokens": model.limits.context_tokens_max,
    })
}
