//! Server-sent events: a running request as a response body that is pulled, never pushed.
//!
//! The connection asks for the next event when it has sent the last, so a slow reader slows its own request alone. A
//! stream ends with `[DONE]` or with an error event, never with both and never with neither.

use std::collections::VecDeque;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::time::timeout;

use super::generate::{ChoiceEvent, Running, Usage};
use super::routes::RequestId;

/// How an API spells a request's events; each method returns the JSON of one chunk.
pub(super) trait ChunkFormat: Send + 'static {
    /// What comes before a choice's first event.
    fn opening(&self, index: usize) -> Option<String>;
    fn chunk(&self, running: &Running, index: usize, event: &ChoiceEvent) -> String;
    fn usage(&self, usage: Usage) -> String;
}

/// Streams a request that the engine has admitted.
pub(super) fn response(
    running: Running,
    format: impl ChunkFormat,
    include_usage: bool,
    id: RequestId,
) -> Response {
    let opening = (0..running.choices()).filter_map(|index| format.opening(index)).map(frame).collect();
    let events = EventStream { running: Some(running), format, include_usage, id, frames: opening };
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
    include_usage: bool,
    id: RequestId,
    frames: VecDeque<Bytes>,
}

impl<F: ChunkFormat> EventStream<F> {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(frame) = self.frames.pop_front() {
            return Some(frame);
        }
        let running = self.running.as_mut()?;
        let interval = running.service().config.keepalive_interval;
        let Ok(event) = timeout(interval, running.next()).await else {
            // A comment: clients skip it, and nothing between us and them takes the connection for dead.
            return Some(Bytes::from_static(b": keepalive\n\n"));
        };
        match event {
            Ok(Some((index, event))) => return Some(frame(self.format.chunk(running, index, &event))),
            Ok(None) => {
                if self.include_usage {
                    self.frames.push_back(frame(self.format.usage(running.usage())));
                }
                self.frames.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
            }
            Err(error) => {
                self.id.log("stream", &error);
                self.frames.push_back(frame(error.body()));
            }
        }
        self.running = None;
        self.frames.pop_front()
    }
}

fn frame(json: String) -> Bytes {
    // JSON escapes line breaks, so one `data:` line holds it.
    Bytes::from(format!("data: {json}\n\n"))
}
