//! What the log says of requests, and what it never says.

use std::io::{self, Write};

use axum::body::to_bytes;
use serde_json::{Value, json};
use tracing::{Dispatch, subscriber::DefaultGuard};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::super::error::ApiError;
use super::super::generate::{GenerationPlan, Prompt, Running};
use super::super::options::{FieldNames, GenerationOptions};
use super::super::routes::Caller;
use super::super::sse::{self, AnswerFormat, Frames};
use super::super::{ApiKey, answer::ChoiceEvent, fields::Fields};
use super::*;
use crate::ids::ClientId;

/// Stands in everything that a log must not have.
const SECRET: &str = "xyzzy";

/// The log of this thread, which a test's server runs on, as JSON lines.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Dropping it ends the capture.
struct Captured {
    _guard: DefaultGuard,
    _second: Dispatch,
}

impl Log {
    fn capture(level: LevelFilter) -> (Self, Captured) {
        // A lone subscriber is asked on behalf of the thread that first reaches a line, which may be another test's.
        let second = Dispatch::new(tracing_subscriber::registry());
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt().json().with_max_level(level).with_writer(log.clone());
        let guard = tracing::subscriber::set_default(subscriber.finish());
        (log, Captured { _guard: guard, _second: second })
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The fields of the lines of one request.
    fn of(&self, request_id: &str) -> Vec<Value> {
        let lines =
            self.text().lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>();
        lines
            .into_iter()
            .map(|line| line["fields"].clone())
            .filter(|fields| fields["request_id"] == request_id)
            .collect()
    }
}

#[tokio::test]
async fn a_failure_is_logged_under_the_id_that_its_client_got() {
    let (log, _guard) = Log::capture(LevelFilter::INFO);
    let server = TestServer::start(|request| match request.sampling.seed {
        1 => vec![Fail(EngineError::Execution("at 0xdeadbeef".into()))],
        2 => vec![Admit(0), Text("a"), Fail(EngineError::SlowConsumer { events_max: 1 })],
        _ => vec![Admit(0), Text("a"), End],
    })
    .await;
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let cases = [
        (json!({"messages": messages, "top_p": 2}), "request", "invalid_value"),
        (json!({"messages": messages, "seed": 2, "stream": true}), "stream", "slow_consumer"),
        (json!({"messages": messages, "seed": 2}), "request", "slow_consumer"),
        (json!({"messages": messages, "seed": 1}), "request", "execution_failed"),
    ];
    for (body, stage, code) in cases {
        let reply = server.post("/v1/chat/completions", &body).await;
        let lines = log.of(&reply.headers["x-request-id"]);
        assert_eq!(lines.len(), 1, "{}", log.text());
        assert_eq!((&lines[0]["stage"], &lines[0]["code"]), (&json!(stage), &json!(code)));
    }
    assert!(log.text().contains("0xdeadbeef"), "the log says what clients are not told");
}

#[tokio::test]
async fn answers_are_logged_when_asked_for_and_prompts_and_keys_never() {
    for (level, lines) in [(LevelFilter::INFO, 0), (LevelFilter::TRACE, 1)] {
        let (log, _guard) = Log::capture(level);
        let config = ServerConfig { api_keys: vec![ApiKey::new(SECRET)], ..quick_config() };
        let script = |_: &GenerationRequest| vec![Admit(0), Text(SECRET), End];
        let server = TestServer::with_config(config, ZeroTemperature::Reject, script).await;
        let send = async |path: &str, body: Value| {
            let request = String::from_utf8(post(path, &body.to_string())).unwrap();
            let key = format!("host: x\r\nauthorization: Bearer {SECRET}\r\n");
            server.send(request.replacen("host: x\r\n", &key, 1).as_bytes()).await
        };
        let said = json!([{"role": "user", "content": SECRET}]);
        for (path, body) in [
            ("/v1/chat/completions", json!({"messages": said, "stream": true})),
            ("/v1/completions", json!({"prompt": SECRET})),
            ("/v1/responses", json!({"input": SECRET})),
            ("/v1/messages", json!({"messages": said, "max_tokens": 9})),
        ] {
            let reply = send(path, body).await;
            assert_eq!(reply.status, 200);
            let answered = log.of(&reply.headers["x-request-id"]);
            assert_eq!(answered.len(), lines, "{}", log.text());
            assert!(answered.iter().all(|line| line["status"] == 200 && line["path"] == path));
        }
        // A wrong field may hold what its sender meant to say.
        let reply =
            send("/v1/chat/completions", json!({"messages": [{"role": SECRET, "content": SECRET}]})).await;
        reply.assert_error(400, "invalid_value", Some("messages[0].role"));
        assert!(reply.body.contains(SECRET));
        assert!(!log.text().contains(SECRET), "{}", log.text());
    }
}

/// An answer whose first event is too much.
struct Fragile;

impl AnswerFormat for Fragile {
    async fn whole(self, _: Running) -> Result<String, ApiError> {
        unreachable!("it is streamed")
    }

    fn open(&mut self, _: &Running, frames: &mut Frames) {
        frames.data("open");
    }

    fn event(&mut self, _: &Running, _: usize, event: ChoiceEvent, _: &mut Frames) {
        panic!("{event:?} at 0xdeadbeef");
    }

    fn close(&mut self, _: &Running, frames: &mut Frames) {
        frames.data("close");
    }

    fn fail(&mut self, _: &Running, error: &ApiError, frames: &mut Frames) {
        frames.data(error.body());
    }

    fn keep_alive(&mut self, _: &mut Frames) {}
}

#[tokio::test]
async fn a_panic_in_a_stream_ends_it_with_an_error_and_is_logged() {
    let (log, _guard) = Log::capture(LevelFilter::INFO);
    let server = TestServer::start(|_| vec![Admit(0), Text("a"), Hang]).await;
    let body = json!({"stream": true});
    let names = &FieldNames::COMPLETIONS;
    let options =
        GenerationOptions::read(&Fields::root(&body).unwrap(), &server.service.model, names).unwrap();
    let tokens = [TokenId(1)].into();
    let prompt = Prompt { tokens, endpoints: Arc::default(), protocol: None, constraint: None };
    let plan = GenerationPlan { prompts: vec![prompt], options, logprobs: None };
    let caller = Caller { request_id: "req_1".into(), client: ClientId(0) };
    let response = sse::answer(&server.service, plan, Fragile, caller).await.unwrap();
    let bytes = to_bytes(response.into_body(), 1 << 16).await.unwrap();
    let reply = str::from_utf8(&bytes).unwrap();
    assert!(
        reply.starts_with("data: open\n\ndata: {\"error\":") && reply.contains("internal_error"),
        "{reply}"
    );
    assert!(!reply.contains("0xdeadbeef"));
    let lines = log.of("req_1");
    assert_eq!((lines.len(), &lines[0]["stage"]), (1, &json!("stream")));
    assert!(lines[0]["error"].as_str().unwrap().contains("0xdeadbeef"));
    server.wait_for_cancelled(1).await;
}
