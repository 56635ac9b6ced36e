//! Keys that clients must show, where the server was given any.
//!
//! A key is kept as its digest and compared in constant time, so that neither memory's contents nor the time of an answer
//! tells of it. Keys are never logged: the type shows nothing of itself. Each key is a client, whose requests take turns with
//! others' where they wait.

use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use sha2::{Digest as _, Sha256};

use super::error::{ApiError, ErrorCode};
use super::routes::Caller;
use super::service::Service;
use crate::ids::ClientId;

/// Paths that need no key: whether the server lives is no secret, and clients look at the root before they log in.
const OPEN_PATHS: [&str; 2] = ["/health", "/"];

/// A key's digest.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey([u8; 32]);

impl ApiKey {
    pub fn new(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// Looks at every byte, whichever differ.
    fn equals(&self, other: &Self) -> bool {
        let difference =
            self.0.iter().zip(other.0).fold(0, |difference, (one, two)| difference | (one ^ two));
        std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ApiKey")
    }
}

/// Refuses requests without one of the keys.
pub(super) async fn require_key(
    State(service): State<Arc<Service>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let keys = &service.config.api_keys;
    if keys.is_empty() || OPEN_PATHS.contains(&request.uri().path()) {
        return Ok(next.run(request).await);
    }
    let Some(shown) = shown_key(request.headers()).map(ApiKey::new) else {
        let message =
            "This server needs a key; send the header 'Authorization: Bearer KEY' or 'x-api-key: KEY'.";
        return Err(ApiError::new(ErrorCode::InvalidApiKey, message));
    };
    // All keys are compared, so that the time does not tell which one is near.
    let Some((_, place)) = keys.iter().zip(0..).filter(|(key, _)| key.equals(&shown)).last() else {
        return Err(ApiError::new(ErrorCode::InvalidApiKey, "The key is not one of this server's."));
    };
    if let Some(caller) = request.extensions_mut().get_mut::<Caller>() {
        caller.client = ClientId(place);
    }
    Ok(next.run(request).await)
}

fn shown_key(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    bearer.or_else(|| headers.get("x-api-key")?.to_str().ok())
}
