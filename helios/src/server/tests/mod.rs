//! The server through real sockets, with a scripted engine at the other end of the handle.

mod access;
mod chat;
mod completions;
mod constraint;
mod fuzz;
mod lifecycle;
mod limits;
mod logs;
mod messages;
mod metrics;
mod models;
mod refusals;
mod responses;
mod tools;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::connection::Ended;
use super::options::ZeroTemperature;
use super::reading::Parsers;
use super::service::{ModelProfile, ServerConfig, Service};
use crate::core::contract::{Limits, ReasoningParser, SamplingDefaults, ToolParser};
use crate::ids::TokenId;
use crate::runtime::engine::{
    EngineCommand, EngineError, EngineLimits, EngineReceiver, FinishReason, GenerationEvent,
    GenerationRequest, SampledToken, Submission, TokenLogprobs, channel,
};
use crate::text::testing::{IM_END, VOCABULARY, byte_level_tokenizer};
use crate::text::{ChatTemplate, TextFrontend};

/// Longest that a test waits for anything.
/// Requests that may wait: more than one body can ask for.
const WAITING_MAX: u32 = 256;

const PATIENCE: Duration = Duration::from_secs(20);
pub(super) const CONTEXT: u32 = 512;

const TEMPLATE: &str = "{% if tools %}[tools {{ tools | tojson }}]{% endif %}\
    {% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}\
    {%- if m.reasoning_content %}[thought {{ m.reasoning_content }}]{% endif %}\
    {%- for c in m.tool_calls or [] %}[call {{ c.function.arguments | tojson }}]{% endfor %}<|im_end|>\n{% endfor %}\
    {% if refuse %}{{ raise_exception('not like this') }}{% endif %}\
    {% if reasoning_effort %}[effort {{ reasoning_effort }}]{% endif %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// How the scripted model writes what it calls and thinks.
const NO_PARSERS: Parsers = (ToolParser::None, ReasoningParser::None);
pub(super) const PARSERS: Parsers = (ToolParser::HermesJson, ReasoningParser::ThinkTags);

/// What the scripted engine does for a request, in order.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// `Admitted`, with this many cached tokens.
    Admit(u32),
    /// One token a byte.
    Text(&'static str),
    Token(u32),
    /// A token with its log probability and alternatives.
    Scored(u32, f32, &'static [(u32, f32)]),
    /// Waits until the request is cancelled.
    Hang,
    /// Waits so many milliseconds.
    Pause(u64),
    End,
    Length,
    Fail(EngineError),
}

pub(super) use Step::*;

type Script = dyn Fn(&GenerationRequest) -> Vec<Step> + Send + Sync;

/// A server under test; dropping it stops everything.
pub(super) struct TestServer {
    pub address: SocketAddr,
    pub service: Arc<Service>,
    pub requests: Arc<Mutex<Vec<GenerationRequest>>>,
    pub cancelled: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Ended>,
}

impl TestServer {
    pub async fn start(script: impl Fn(&GenerationRequest) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::with_config(quick_config(), ZeroTemperature::Reject, script).await
    }

    /// A server whose model writes tool calls and reasoning.
    pub async fn with_parsers(
        script: impl Fn(&GenerationRequest) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        Self::serving(quick_config(), ZeroTemperature::Reject, PARSERS, script).await
    }

    /// A server that fills a silence in every answer.
    pub async fn with_a_silence() -> Self {
        let config = ServerConfig { keepalive_interval: Duration::from_millis(25), ..quick_config() };
        Self::with_config(config, ZeroTemperature::Reject, |_| vec![Admit(0), Pause(120), Text("a"), End])
            .await
    }

    pub async fn with_config(
        config: ServerConfig,
        zero_temperature: ZeroTemperature,
        script: impl Fn(&GenerationRequest) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        Self::serving(config, zero_temperature, NO_PARSERS, script).await
    }

    pub async fn serving(
        config: ServerConfig,
        zero_temperature: ZeroTemperature,
        parsers: Parsers,
        script: impl Fn(&GenerationRequest) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let cancelled = Arc::new(AtomicUsize::new(0));
        let service =
            service(config, zero_temperature, parsers, requests.clone(), cancelled.clone(), Arc::new(script));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(super::serve(listener, service.clone(), async {
            let _ended = stopped.await;
        }));
        Self { address, service, requests, cancelled, stop: Some(stop), serving }
    }

    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(&post(path, &body.to_string())).await
    }

    /// Sends raw bytes and reads the response to its end.
    pub async fn send(&self, bytes: &[u8]) -> Reply {
        let mut stream = self.open(bytes).await;
        let mut reply = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut reply)).await.unwrap().unwrap();
        Reply::parse(&reply)
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await
    }

    /// Connects and sends bytes.
    pub async fn open(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    /// Asks the server to stop.
    pub fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub async fn ended(&mut self) -> Ended {
        timeout(PATIENCE, &mut self.serving).await.unwrap().unwrap()
    }

    pub async fn wait_for_cancelled(&self, count: usize) {
        eventually(|| self.cancelled.load(Ordering::SeqCst) >= count).await;
        assert_eq!(self.cancelled.load(Ordering::SeqCst), count);
    }

    pub async fn wait_for_requests(&self, count: usize) {
        eventually(|| self.requests.lock().unwrap().len() >= count).await;
    }

    pub fn last_request(&self) -> GenerationRequest {
        self.requests.lock().unwrap().last().unwrap().clone()
    }

    /// The last request's prompt as text.
    pub fn last_prompt(&self) -> String {
        self.requests
            .lock()
            .unwrap()
            .last()
            .unwrap()
            .prompt
            .iter()
            .map(|token| match token.0 {
                259 => "<|im_start|>".to_owned(),
                260 => "<|im_end|>".to_owned(),
                _ => self.service.text.tokenizer.decode(&[*token]),
            })
            .collect()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub(super) fn quick_config() -> ServerConfig {
    ServerConfig { drain_timeout: Duration::from_secs(5), ..ServerConfig::default() }
}

pub(super) fn service(
    config: ServerConfig,
    zero_temperature: ZeroTemperature,
    parsers: Parsers,
    requests: Arc<Mutex<Vec<GenerationRequest>>>,
    cancelled: Arc<AtomicUsize>,
    script: Arc<Script>,
) -> Arc<Service> {
    let client_waiting_max = WAITING_MAX / config.api_keys.len().max(1) as u32;
    let (engine, receiver) =
        channel(EngineLimits { waiting_max: WAITING_MAX, client_waiting_max, events_max: 64 });
    tokio::spawn(run_engine(receiver, requests, cancelled, script));
    let text = TextFrontend {
        tokenizer: byte_level_tokenizer(),
        template: ChatTemplate::parse(TEMPLATE, "", "<|im_end|>", 1 << 16).unwrap(),
    };
    let model = ModelProfile {
        id: "tests/tiny".to_owned(),
        fingerprint: "fp_0123456789".to_owned(),
        created_s: 1,
        limits: Limits {
            context_tokens_max: CONTEXT,
            requests_max: 4,
            vocabulary: VOCABULARY,
            prefill_tokens_max: 64,
            bias_entries_max: 4,
            logprobs_max: 20,
        },
        sampling: SamplingDefaults {
            temperature: 0.25,
            top_k: 50,
            top_p: 0.9,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            temperature_range: None,
        },
        eos_tokens: vec![IM_END],
        zero_temperature,
        parsers,
    };
    Service::new(engine, text, model, config)
}

async fn run_engine(
    mut receiver: EngineReceiver,
    requests: Arc<Mutex<Vec<GenerationRequest>>>,
    cancelled: Arc<AtomicUsize>,
    script: Arc<Script>,
) {
    let mut running = JoinSet::new();
    while let Some(command) = receiver.commands.recv().await {
        match command {
            EngineCommand::Wake => {}
            EngineCommand::Submit(submission) => {
                // A set keeps what has ended until it is joined.
                while running.try_join_next().is_some() {}
                requests.lock().unwrap().push(submission.request.clone());
                let steps = script(&submission.request);
                if let Some(Fail(error @ EngineError::Execution(_))) = steps.last() {
                    receiver.fail(error.clone());
                }
                let cancelled = cancelled.clone();
                running.spawn(async move {
                    if !play(submission, steps).await {
                        cancelled.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            EngineCommand::Shutdown { drain_timeout_ms } => {
                let all = async { while running.join_next().await.is_some() {} };
                let _drained = timeout(Duration::from_millis(drain_timeout_ms), all).await;
                return;
            }
        }
    }
}

/// Plays a script; whether the request was wanted to its end.
async fn play(submission: Submission, steps: Vec<Step>) -> bool {
    let Submission { events, cancelled, place, .. } = submission;
    let mut place = Some(place);
    let gone = || events.is_closed() || cancelled.load(Ordering::Acquire);
    for step in steps {
        let plain = |id: u32| GenerationEvent::Token(SampledToken { token: TokenId(id), logprobs: None });
        let batch = match step {
            Admit(cached_tokens) => {
                place = None;
                vec![GenerationEvent::Admitted { cached_tokens }]
            }
            Text(text) => text.bytes().map(|byte| plain(byte.into())).collect(),
            Token(id) => vec![plain(id)],
            Scored(id, sampled, alternatives) => {
                let alternatives = alternatives.iter().map(|&(id, value)| (TokenId(id), value)).collect();
                let logprobs = Some(TokenLogprobs { sampled, alternatives });
                vec![GenerationEvent::Token(SampledToken { token: TokenId(id), logprobs })]
            }
            Hang => {
                eventually(gone).await;
                return false;
            }
            Pause(milliseconds) => {
                sleep(Duration::from_millis(milliseconds)).await;
                Vec::new()
            }
            End => vec![plain(IM_END.0), GenerationEvent::Finished(FinishReason::EndToken)],
            Length => vec![GenerationEvent::Finished(FinishReason::Length)],
            Fail(error) => vec![GenerationEvent::Failed(error)],
        };
        for event in batch {
            if gone() || events.send(event).await.is_err() {
                return false;
            }
        }
    }
    drop(place);
    true
}

pub(super) async fn eventually(condition: impl Fn() -> bool) {
    timeout(PATIENCE, async {
        while !condition() {
            sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .expect("the condition holds in time");
}

/// The bytes of a JSON request.
pub(super) fn post(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A parsed response.
#[derive(Debug)]
pub(super) struct Reply {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: String,
}

impl Reply {
    pub fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a whole head") + 4;
        let head = str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: HashMap<String, String> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let chunked = headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked");
        let body = if chunked { unchunk(&bytes[end..]) } else { bytes[end..].to_vec() };
        Self { status, headers, body: String::from_utf8(body).unwrap() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The payloads of a stream's events; a named event's name is its type.
    pub fn events(&self) -> Vec<Value> {
        let payloads = self.body.split("\n\n").filter_map(|frame| match frame.strip_prefix("event: ") {
            None => frame.strip_prefix("data: "),
            Some(named) => {
                let (name, payload) = named.split_once("\ndata: ").expect("a named event has data");
                assert!(payload.contains(&format!("\"type\":\"{name}\"")), "{frame}");
                Some(payload)
            }
        });
        payloads
            .filter(|payload| *payload != "[DONE]")
            .map(|payload| serde_json::from_str(payload).unwrap())
            .collect()
    }

    /// The stream with its id and creation time replaced, to compare bytes.
    pub fn golden(&self) -> String {
        let first = &self.events()[0];
        self.body
            .replace(first["id"].as_str().unwrap(), "ID")
            .replace(&format!("\"created\":{}", first["created"]), "\"created\":0")
    }

    /// The types of a stream's events.
    pub fn event_types(&self) -> Vec<String> {
        self.events().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }

    /// Checks Anthropic's error envelope.
    #[track_caller]
    pub fn assert_anthropic_error(&self, status: u16, kind: &str) {
        assert_eq!(self.status, status, "{}", self.body);
        let body = self.json();
        assert_eq!((&body["type"], &body["error"]["type"]), (&"error".into(), &kind.into()), "{}", self.body);
        assert!(!body["error"]["message"].as_str().unwrap().is_empty());
        assert_eq!(body["request_id"], self.headers["x-request-id"].as_str());
        assert_eq!(self.headers["request-id"], self.headers["x-request-id"]);
    }

    /// Checks the error envelope.
    #[track_caller]
    pub fn assert_error(&self, status: u16, code: &str, param: Option<&str>) {
        assert_eq!(self.status, status, "{}", self.body);
        let body = self.json();
        let error = body["error"].as_object().unwrap();
        assert_eq!(error.keys().collect::<Vec<_>>(), ["message", "type", "param", "code"]);
        assert_eq!(error["code"], code, "{}", self.body);
        assert_eq!(error["param"].as_str(), param, "{}", self.body);
        assert!(!error["message"].as_str().unwrap().is_empty());
        let kind = if status >= 500 { "server_error" } else { "invalid_request_error" };
        assert_eq!(error["type"], kind);
        assert!(self.headers["x-request-id"].starts_with("req_"));
    }
}

fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let length = usize::from_str_radix(str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        bytes = &bytes[end + 2..];
        body.extend_from_slice(&bytes[..length.min(bytes.len())]);
        bytes = bytes.get(length + 2..).unwrap_or_default();
        if length == 0 {
            break;
        }
    }
    body
}

/// Reads a connection until `needle` has arrived.
pub(super) async fn read_until(stream: &mut TcpStream, needle: &str) -> String {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    timeout(PATIENCE, async {
        while !String::from_utf8_lossy(&seen).contains(needle) {
            let read = stream.read(&mut buffer).await.unwrap();
            assert!(read > 0, "the stream ended before {needle:?}: {}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&buffer[..read]);
        }
    })
    .await
    .unwrap();
    String::from_utf8_lossy(&seen).into_owned()
}
