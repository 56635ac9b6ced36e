//! Answers, whole or as server-sent events: a running request as a response body that is pulled, never pushed.
//!
//! The connection asks for the next event when it has sent the last, so a slow reader slows its own request alone. A
//! stream ends as its API ends streams or with an error event, never with both and never with neither.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt as _, stream};
use serde_json::Value;
use tokio::time::timeout;

use super::answer::ChoiceEvent;
use super::error::ApiError;
use super::generate::{GenerationPlan, Running};
use super::routes::{Caller, Json, panic_error};
use super::service::Service;

/// How an API spells a request's answer.
pub(super) trait AnswerFormat: Send + 'static {
    /// The body of an answer that is not streamed.
    fn whole(self, running: Running) -> impl Future<Output = Result<String, ApiError>> + Send;
    /// What comes before the first event.
    fn open(&mut self, running: &Running, frames: &mut Frames);
    /// One event of a choice.
    fn event(&mut self, running: &Running, index: usize, event: ChoiceEvent, frames: &mut Frames);
    /// What comes after the last event of all choices.
    fn close(&mut self, running: &Running, frames: &mut Frames);
    /// What comes in its place after a failure.
    fn fail(&mut self, running: &Running, error: &ApiError, frames: &mut Frames);
    /// What fills a silence.
    fn keep_alive(&mut self, frames: &mut Frames);
}

/// Frames that are not sent yet.
#[derive(Debug, Default)]
pub(super) struct Frames(VecDeque<Bytes>);

impl Frames {
    /// A `data:` line alone. JSON escapes line breaks, so one line holds it.
    pub fn data(&mut self, data: impl std::fmt::Display) {
        self.0.push_back(Bytes::from(format!("data: {data}\n\n")));
    }

    /// An event under the name that its `type` gives it.
    pub fn event(&mut self, event: &Value) {
        let name = event["type"].as_str().expect("events have a type");
        self.0.push_back(Bytes::from(format!("event: {name}\ndata: {event}\n\n")));
    }

    /// A comment, which clients skip.
    pub fn comment(&mut self, text: &str) {
        self.0.push_back(Bytes::from(format!(": {text}\n\n")));
    }

    /// Forgets what was written, for answers that are not streamed.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Runs a request, and answers in the way that it asked for.
///
/// # Errors
/// What it is refused with, or what it fails of before it has a status.
pub(super) async fn answer(
    service: &Arc<Service>,
    plan: GenerationPlan,
    format: impl AnswerFormat,
    caller: Caller,
) -> Result<Response, ApiError> {
    let stream = plan.options.stream;
    let mut running = Running::start(service, plan, caller.client).await?;
    if !stream {
        return Ok(Json(format.whole(running).await?).into_response());
    }
    // A refusal has a status of its own while it may. A client that waits in line for longer must hear of the server.
    if let Ok(admitted) = timeout(service.config.keepalive_interval, running.admitted()).await {
        admitted?;
    }
    Ok(response(running, format, caller))
}

/// Streams a request's answer.
fn response(running: Running, mut format: impl AnswerFormat, caller: Caller) -> Response {
    let mut frames = Frames::default();
    format.open(&running, &mut frames);
    let events = EventStream { running: Some(running), format, caller, frames };
    let body = stream::unfold(events, |mut events| async move {
        let frame = events.next().await?;
        Some((Ok::<_, std::convert::Infallible>(frame), events))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(body)).into_response()
}

struct EventStream<F> {
    /// `None` once the stream's last frame is queued.
    running: Option<Running>,
    format: F,
    caller: Caller,
    frames: Frames,
}

impl<F: AnswerFormat> EventStream<F> {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.frames.0.pop_front() {
                return Some(frame);
            }
            let running = self.running.as_mut()?;
            let advanced = advance(running, &mut self.format, &mut self.frames);
            // A stream has sent its status, so nothing else catches what panics here.
            let advanced = AssertUnwindSafe(advanced).catch_unwind().await;
            match advanced.unwrap_or_else(|panic| Err(panic_error(&*panic))) {
                Ok(ControlFlow::Continue(())) => continue,
                Ok(ControlFlow::Break(())) => {}
                Err(error) => {
                    self.caller.log("stream", &error);
                    self.format.fail(running, &error, &mut self.frames);
                }
            }
            self.running = None;
        }
    }
}

/// Writes what happens next; breaks once it is the end.
async fn advance(
    running: &mut Running,
    format: &mut impl AnswerFormat,
    frames: &mut Frames,
) -> Result<ControlFlow<()>, ApiError> {
    let interval = running.service().config.keepalive_interval;
    let Ok(event) = timeout(interval, running.next()).await else {
        format.keep_alive(frames);
        return Ok(ControlFlow::Continue(()));
    };
    let Some((index, event)) = event? else {
        format.close(running, frames);
        return Ok(ControlFlow::Break(()));
    };
    format.event(running, index, event, frames);
    Ok(ControlFlow::Continue(()))
}
