//! Reading a request's body within its limits of size, time and memory.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, header};
use http_body_util::BodyExt as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::{ApiError, ErrorCode};
use super::service::Service;

/// How much and how long a refused body is read on, so that its sender gets to see the answer.
const DISCARDED_BYTES_MAX: usize = 256 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// A body and its share of the memory that bodies may take together.
#[derive(Debug)]
pub(super) struct BufferedBody {
    pub bytes: Vec<u8>,
    _share: Vec<OwnedSemaphorePermit>,
}

/// Reads a JSON request's body.
///
/// # Errors
/// 415 for another content type, 413 over `body_bytes_max`, 408 when it does not arrive in time, 503 when all
/// bodies together take too much memory, 400 when it breaks off.
pub(super) async fn read(service: &Service, request: Request<Body>) -> Result<BufferedBody, ApiError> {
    check_content_type(&request)?;
    let bytes_max = service.config.body_bytes_max;
    let declared = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let awaits_consent = request.headers().contains_key(header::EXPECT);
    let mut body = request.into_body();
    if declared.is_some_and(|bytes| bytes > bytes_max) {
        if !awaits_consent {
            discard(body);
        }
        return Err(too_large(bytes_max));
    }
    let deadline = Instant::now() + service.config.body_timeout;
    let mut read = BufferedBody { bytes: Vec::new(), _share: Vec::new() };
    while let Some(chunk) = next_chunk(service, &mut body, deadline).await? {
        if read.bytes.len() + chunk.len() > bytes_max {
            discard(body);
            return Err(too_large(bytes_max));
        }
        let kibibytes = u32::try_from(chunk.len().div_ceil(1 << 10)).unwrap_or(u32::MAX);
        match service.buffered_kibibytes.clone().try_acquire_many_owned(kibibytes) {
            Ok(share) => read._share.push(share),
            Err(_) => {
                discard(body);
                let message = "Other requests' bodies take all the memory set aside for them; retry later.";
                return Err(ApiError::new(ErrorCode::ServerBusy, message));
            }
        }
        read.bytes.extend_from_slice(&chunk);
    }
    Ok(read)
}

/// Any web page may make a browser post plain text or a form here; JSON it may not send without asking first.
fn check_content_type(request: &Request<Body>) -> Result<(), ApiError> {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.unwrap_or("").split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    if essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json")) {
        return Ok(());
    }
    let message = "The body must be JSON; send the header 'Content-Type: application/json'.";
    Err(ApiError::new(ErrorCode::UnsupportedMediaType, message))
}

async fn next_chunk(
    service: &Service,
    body: &mut Body,
    deadline: Instant,
) -> Result<Option<Bytes>, ApiError> {
    loop {
        let idle = timeout(service.config.body_idle_timeout, body.frame());
        let late = |_| ApiError::new(ErrorCode::RequestTimeout, "The request's body did not arrive in time.");
        let Some(frame) = timeout_at(deadline, idle).await.map_err(late)?.map_err(late)? else {
            return Ok(None);
        };
        let frame = frame.map_err(|error| ApiError {
            internal: Some(error.to_string()),
            ..ApiError::new(ErrorCode::InvalidJson, "The request's body broke off before its end.")
        })?;
        // Trailers carry nothing that a request needs.
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}

fn too_large(bytes_max: usize) -> ApiError {
    let message = format!("The request's body exceeds {bytes_max} bytes; send less.");
    ApiError::new(ErrorCode::BodyTooLarge, message)
}

/// Reads a refused body to nowhere. A connection closed on unread bytes is reset, and the client would see that
/// instead of the answer.
fn discard(mut body: Body) {
    tokio::spawn(timeout(DISCARD_TIMEOUT, async move {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > DISCARDED_BYTES_MAX {
                break;
            }
        }
    }));
}
