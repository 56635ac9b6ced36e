//! What a client is told when a request cannot be served.
//!
//! An error has one of two envelopes: OpenAI's, `{"error": {message, type, param, code}}` with all four keys present, or
//! for clients of Anthropic's API Anthropic's, `{"type": "error", "error": {type, message}, "request_id"}`. What
//! is for the operator alone ([`ApiError::internal`]) is logged with the request's id and never reaches a body.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use crate::runtime::engine::EngineError;
use crate::text::{TemplateError, TokenizerError};

/// Seconds after which a refused client may try again.
const RETRY_AFTER_S: u16 = 1;

/// What went wrong, as clients match on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    InvalidJson,
    InvalidType,
    InvalidValue,
    MissingParameter,
    UnsupportedParameter,
    TemplateError,
    ContextLengthExceeded,
    InvalidApiKey,
    ModelNotFound,
    ResponseNotFound,
    PreviousResponseNotFound,
    UnknownUrl,
    MethodNotAllowed,
    RequestTimeout,
    BodyTooLarge,
    UnsupportedMediaType,
    ToolChoiceUnsatisfied,
    QueueFull,
    ServerBusy,
    ShuttingDown,
    SlowConsumer,
    ExecutionFailed,
    GenerationTimeout,
    Internal,
}

impl ErrorCode {
    /// The code's spelling in bodies and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidJson => "invalid_json",
            Self::InvalidType => "invalid_type",
            Self::InvalidValue => "invalid_value",
            Self::MissingParameter => "missing_required_parameter",
            Self::UnsupportedParameter => "unsupported_parameter",
            Self::TemplateError => "template_error",
            Self::ContextLengthExceeded => "context_length_exceeded",
            Self::InvalidApiKey => "invalid_api_key",
            Self::ModelNotFound => "model_not_found",
            Self::ResponseNotFound => "response_not_found",
            Self::PreviousResponseNotFound => "previous_response_not_found",
            Self::UnknownUrl => "unknown_url",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::RequestTimeout => "request_timeout",
            Self::BodyTooLarge => "request_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::ToolChoiceUnsatisfied => "tool_choice_unsatisfied",
            Self::QueueFull => "queue_full",
            Self::ServerBusy => "server_busy",
            Self::ShuttingDown => "shutting_down",
            Self::SlowConsumer => "slow_consumer",
            Self::ExecutionFailed => "execution_failed",
            Self::GenerationTimeout => "generation_timeout",
            Self::Internal => "internal_error",
        }
    }

    /// The response's status, where no status has been sent yet.
    pub fn status(self) -> StatusCode {
        match self {
            Self::InvalidJson
            | Self::InvalidType
            | Self::InvalidValue
            | Self::MissingParameter
            | Self::UnsupportedParameter
            | Self::TemplateError
            | Self::ContextLengthExceeded => StatusCode::BAD_REQUEST,
            Self::InvalidApiKey => StatusCode::UNAUTHORIZED,
            Self::ModelNotFound
            | Self::ResponseNotFound
            | Self::PreviousResponseNotFound
            | Self::UnknownUrl => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            // The request is in order and the model did not follow it: nothing that a client should repeat by itself.
            Self::ToolChoiceUnsatisfied => StatusCode::UNPROCESSABLE_ENTITY,
            Self::QueueFull | Self::ServerBusy | Self::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            Self::GenerationTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::SlowConsumer | Self::ExecutionFailed | Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A request that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} ({}){}", self.message, self.code.as_str(), self.internal.as_ref().map(|text| format!(": {text}")).unwrap_or_default())]
pub struct ApiError {
    pub code: ErrorCode,
    /// The request's field that is at fault.
    pub param: Option<String>,
    /// For the client: what was wrong, and what to do.
    pub message: String,
    /// For the log alone.
    pub internal: Option<String>,
}

impl ApiError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, param: None, message: message.into(), internal: None }
    }

    /// An error of one field.
    pub fn of(code: ErrorCode, param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(code, message) }
    }

    /// A fault of the server; `internal` says which, to the log.
    pub fn internal(internal: impl Into<String>) -> Self {
        Self {
            internal: Some(internal.into()),
            ..Self::new(ErrorCode::Internal, "The server failed to handle the request; its log says why.")
        }
    }

    pub fn status(&self) -> StatusCode {
        self.code.status()
    }

    /// The JSON of OpenAI's envelope.
    pub fn body(&self) -> String {
        let kind = if self.status().is_server_error() { "server_error" } else { "invalid_request_error" };
        let error = Envelope {
            error: EnvelopeFields {
                message: &self.message,
                kind,
                param: self.param.as_deref(),
                code: self.code.as_str(),
            },
        };
        serde_json::to_string(&error).expect("strings are always JSON")
    }

    /// Anthropic's envelope, which is its streams' error event too.
    pub fn anthropic(&self, request_id: &str) -> Value {
        let error = json!({"type": self.anthropic_type(), "message": self.anthropic_message()});
        json!({"type": "error", "error": error, "request_id": request_id})
    }

    fn anthropic_type(&self) -> &'static str {
        match self.status() {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            status if status.is_server_error() => "api_error",
            _ => "invalid_request_error",
        }
    }

    /// Agents take a message that begins so as the sign that a conversation must be compacted.
    fn anthropic_message(&self) -> String {
        const TOO_LONG: &str = "prompt is too long";
        match self.code {
            ErrorCode::ContextLengthExceeded if !self.message.starts_with(TOO_LONG) => {
                format!("{TOO_LONG}: {}", self.message)
            }
            _ => self.message.clone(),
        }
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: EnvelopeFields<'a>,
}

#[derive(Serialize)]
struct EnvelopeFields<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: &'static str,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response =
            (self.status(), [(header::CONTENT_TYPE, "application/json")], self.body()).into_response();
        if self.status() == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
        }
        // The request's middleware logs it, because it knows the request's id.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            EngineError::QueueFull { .. } | EngineError::ShareFull { .. } => {
                Self::new(ErrorCode::QueueFull, message)
            }
            EngineError::PromptTooLong { .. } | EngineError::PoolTooSmall { .. } => {
                Self::new(ErrorCode::ContextLengthExceeded, message)
            }
            EngineError::Unsupported(_) | EngineError::Constraint(_) => {
                Self::new(ErrorCode::UnsupportedParameter, message)
            }
            EngineError::SlowConsumer { .. } => Self::new(ErrorCode::SlowConsumer, message),
            EngineError::ShuttingDown => Self::new(ErrorCode::ShuttingDown, message),
            EngineError::Execution(_) => Self {
                internal: Some(message),
                ..Self::new(
                    ErrorCode::ExecutionFailed,
                    "The model's execution failed; the server's log says why. The server must be restarted.",
                )
            },
        }
    }
}

impl From<TemplateError> for ApiError {
    fn from(error: TemplateError) -> Self {
        let code = match error {
            TemplateError::OutputTooLong { .. } => ErrorCode::ContextLengthExceeded,
            _ => ErrorCode::TemplateError,
        };
        Self::of(code, "messages", error.to_string())
    }
}

impl ApiError {
    /// A prompt that cannot be tokenized; `param` is the field that it came from.
    pub fn tokenizing(param: &str, error: &TokenizerError) -> Self {
        match error {
            TokenizerError::InputTooLong { .. } => {
                Self::of(ErrorCode::ContextLengthExceeded, param, error.to_string())
            }
            _ => Self::internal(error.to_string()),
        }
    }
}
