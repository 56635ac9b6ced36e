//! `GET /v1/models` and `GET /v1/models/{id}`.

use std::sync::Arc;

use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::error::ApiError;
use super::routes::Json;
use super::service::{ModelProfile, Service};

pub(super) async fn list(State(service): State<Arc<Service>>) -> Json {
    Json(json!({"object": "list", "data": [card(&service.model)]}).to_string())
}

pub(super) async fn retrieve(
    State(service): State<Arc<Service>>,
    Path(id): Path<String>,
) -> Result<Json, ApiError> {
    service.model.check_name(Some(&id))?;
    Ok(Json(card(&service.model).to_string()))
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
