//! Which path is served by which API, and what holds for all of them: a request id, one error envelope, no lost panic.

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::Value;
use tokio::time::Instant;
use tower_http::catch_panic::CatchPanicLayer;

use super::auth::require_key;
use super::error::{ApiError, ErrorCode};
use super::service::{Service, random_id};
use super::{chat, completions, cors, health, messages, metrics, models, responses, tokenize};
use crate::ids::ClientId;
use crate::runtime::engine::EngineError;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The same for clients of Anthropic's API.
const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Who asks: one HTTP request's name in `x-request-id` and in the log, and the client that it counts for.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub request_id: Arc<str>,
    pub client: ClientId,
}

impl Caller {
    /// Logs a failed request, a fault of the server with all that is known of it. What is wrong with a request is told to its
    /// sender alone, for the message may quote the conversation.
    pub fn log(&self, stage: &str, error: &ApiError) {
        let (request_id, code) = (&*self.request_id, error.code.as_str());
        if error.status() == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(request_id, stage, code, %error, "request failed");
        } else {
            tracing::info!(request_id, stage, code, param = error.param, "request refused");
        }
    }
}

/// A JSON body, already serialized.
#[derive(Debug)]
pub(super) struct Json(pub String);

impl Json {
    /// Parses a request's body.
    ///
    /// # Errors
    /// A 400 that says where the JSON is wrong.
    pub fn parse(body: &[u8]) -> Result<Value, ApiError> {
        serde_json::from_slice(body).map_err(|error| {
            ApiError::new(ErrorCode::InvalidJson, format!("The body is not valid JSON: {error}."))
        })
    }
}

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

/// The whole surface.
pub(super) fn router(service: Arc<Service>) -> Router {
    let generation = Router::new()
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/completions", post(completions::create))
        .route("/v1/responses", post(responses::create))
        .route("/v1/messages", post(messages::create))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route_layer(from_fn_with_state(Arc::clone(&service), refuse_when_stopping));
    let router = Router::new()
        .merge(generation)
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        // A stored response is no generation, and stays while the server stops.
        .route("/v1/responses/{id}", get(responses::retrieve).delete(responses::forget))
        .route("/v1/models", get(models::list))
        // An id may hold slashes, as Hugging Face's do.
        .route("/v1/models/{*id}", get(models::retrieve))
        .route("/health", get(health::health))
        .route("/metrics", get(metrics::metrics))
        .route("/", get(health::greeting))
        .fallback(unknown_url)
        .method_not_allowed_fallback(unknown_method)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(Arc::clone(&service), require_key));
    // Around the keys: a browser asks without one what it may send, and must be told.
    let router = match cors::layer(&service.config.cors_origins, REQUEST_ID) {
        Some(cors) => router.layer(cors),
        None => router,
    };
    router.layer(from_fn(identify)).with_state(service)
}

/// Gives every request its id, and logs its error, and at the level of debugging its answer.
async fn identify(mut request: Request, next: Next) -> Response {
    let caller = match random_id("req_") {
        // The keys say which client it is, where there are any.
        Ok(id) => Caller { request_id: id.into(), client: ClientId::default() },
        Err(error) => return error.into_response(),
    };
    request.extensions_mut().insert(caller.clone());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let started = Instant::now();
    let speaks_anthropic = path.starts_with("/v1/messages")
        || (path.starts_with("/v1/models") && models::is_anthropic(request.headers()));
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions().get::<ApiError>() {
        caller.log("request", error);
        if speaks_anthropic {
            let body = error.anthropic(&caller.request_id).to_string();
            response.headers_mut().remove(header::CONTENT_LENGTH);
            response = response.map(|_| Body::from(body));
        }
    }
    let (status, elapsed_ms) = (response.status().as_u16(), started.elapsed().as_millis() as u64);
    tracing::debug!(request_id = &*caller.request_id, %method, path, status, elapsed_ms, "request answered");
    let value = HeaderValue::from_str(&caller.request_id).expect("the id is hexadecimal");
    if speaks_anthropic {
        response.headers_mut().insert(ANTHROPIC_REQUEST_ID, value.clone());
    }
    response.headers_mut().insert(REQUEST_ID, value);
    response
}

/// Refuses work before its body is read.
async fn refuse_when_stopping(
    State(service): State<Arc<Service>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if service.is_stopping() {
        return Err(EngineError::ShuttingDown.into());
    }
    Ok(next.run(request).await)
}

async fn unknown_url(uri: Uri) -> ApiError {
    ApiError::new(ErrorCode::UnknownUrl, format!("There is nothing at {}.", uri.path()))
}

async fn unknown_method(method: Method, uri: Uri) -> ApiError {
    ApiError::new(ErrorCode::MethodNotAllowed, format!("{method} is not allowed at {}.", uri.path()))
}

pub(super) fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response<Body> {
    panic_error(&*panic).into_response()
}

pub(super) fn panic_error(panic: &(dyn Any + Send)) -> ApiError {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    ApiError::internal(format!("a handler panicked: {}", text.unwrap_or("without a message")))
}
