//! `GET /health` and the greeting at `/`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::json;

use super::routes::Json;
use super::service::Service;

/// 200 while requests are served; 503 once execution has failed or the server is stopping. The engine's counters either way.
pub(super) async fn health(State(service): State<Arc<Service>>) -> (StatusCode, Json) {
    let stats = service.engine.stats();
    let (status, name) = if stats.failed {
        (StatusCode::SERVICE_UNAVAILABLE, "failed")
    } else if service.is_stopping() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else {
        (StatusCode::OK, "ok")
    };
    (status, Json(json!({"status": name, "model": service.model.id, "engine": stats}).to_string()))
}

/// Some clients look here first to see that anything answers.
pub(super) async fn greeting(State(service): State<Arc<Service>>) -> Json {
    Json(
        json!({"name": "flare", "version": env!("CARGO_PKG_VERSION"), "model": service.model.id}).to_string(),
    )
}
