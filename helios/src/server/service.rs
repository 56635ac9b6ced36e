//! What all requests share: the engine handle, the model's text frontend, limits and identity.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Semaphore;

use super::auth::ApiKey;
use super::body::BufferedBody;
use super::cors::CorsOrigin;
use super::error::{ApiError, ErrorCode};
use super::options::ZeroTemperature;
use super::reading::Parsers;
use super::responses::ResponseStore;
use crate::core::contract::{BoundContract, Limits, SamplingDefaults};
use crate::grammar::{GrammarCompiler, GrammarError, GrammarLimits, Vocabulary};
use crate::ids::TokenId;
use crate::runtime::engine::Engine;
use crate::text::TextFrontend;

/// Capacities and times of the server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Connections served at one time; further ones wait to be accepted.
    pub connections_max: usize,
    /// Bytes of one request's body.
    pub body_bytes_max: usize,
    /// Bytes of all bodies that are being read or prepared.
    pub buffered_bytes_max: usize,
    /// Bytes of a request's line and headers.
    pub header_bytes_max: usize,
    /// Within which a request's line and headers must arrive, and a kept connection be used again.
    pub header_timeout: Duration,
    /// Longest wait for the next bytes of a body.
    pub body_idle_timeout: Duration,
    /// Within which a whole body must arrive.
    pub body_timeout: Duration,
    /// How long a client may take nothing of what it is sent.
    pub send_timeout: Duration,
    /// Silence after which a stream gets a sign of life.
    pub keepalive_interval: Duration,
    /// What a request may take from its submission to its last token; `None` for as long as it takes.
    pub request_timeout: Option<Duration>,
    /// Responses that are kept, and their bytes and their conversations' together.
    pub stored_responses_max: usize,
    pub stored_bytes_max: usize,
    /// Requests that are parsed, rendered and tokenized at one time.
    pub preparations_max: usize,
    /// How long running requests may take to finish once the server stops.
    pub drain_timeout: Duration,
    /// Different keys, of which requests must show one; each is a client of its own. None lets everybody in, as one client.
    pub api_keys: Vec<ApiKey>,
    /// Origins of web pages that may send requests.
    pub cors_origins: Vec<CorsOrigin>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            body_bytes_max: 32 << 20,
            buffered_bytes_max: 256 << 20,
            header_bytes_max: 64 << 10,
            header_timeout: Duration::from_secs(30),
            body_idle_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(120),
            send_timeout: Duration::from_secs(60),
            keepalive_interval: Duration::from_secs(10),
            request_timeout: None,
            stored_responses_max: 1024,
            stored_bytes_max: 64 << 20,
            preparations_max: 2,
            drain_timeout: Duration::from_secs(10),
            api_keys: Vec::new(),
            cors_origins: Vec::new(),
        }
    }
}

/// What requests are checked against, and what `/v1/models` shows.
#[derive(Clone, Debug)]
pub struct ModelProfile {
    /// The id that clients see.
    pub id: String,
    pub fingerprint: String,
    /// Seconds since 1970 at which serving started.
    pub created_s: u64,
    pub limits: Limits,
    pub sampling: SamplingDefaults,
    pub eos_tokens: Vec<TokenId>,
    pub zero_temperature: ZeroTemperature,
    /// How the model writes tool calls and reasoning.
    pub parsers: Parsers,
}

impl ModelProfile {
    /// The profile of a core, served under `id` or the core's own name.
    pub fn new(contract: &BoundContract, id: Option<String>, zero_temperature: ZeroTemperature) -> Self {
        let identity = &contract.identity;
        Self {
            id: id.unwrap_or_else(|| identity.model_name.clone()),
            fingerprint: format!("fp_{}", identity.model_fingerprint.chars().take(10).collect::<String>()),
            created_s: now_s(),
            limits: contract.limits,
            sampling: contract.sampling.clone(),
            eos_tokens: contract.frontend.eos_tokens.clone(),
            zero_temperature,
            parsers: (contract.frontend.tool_parser, contract.frontend.reasoning_parser),
        }
    }
}

/// What all requests share.
#[derive(Debug)]
pub struct Service {
    pub engine: Engine,
    pub text: TextFrontend,
    pub model: ModelProfile,
    pub config: ServerConfig,
    pub(super) responses: ResponseStore,
    grammars: OnceLock<Result<GrammarCompiler, GrammarError>>,
    preparations: Arc<Semaphore>,
    pub(super) buffered_kibibytes: Arc<Semaphore>,
    stopping: AtomicBool,
}

impl Service {
    pub fn new(engine: Engine, text: TextFrontend, model: ModelProfile, config: ServerConfig) -> Arc<Self> {
        Arc::new(Self {
            engine,
            text,
            model,
            responses: ResponseStore::new(config.stored_responses_max, config.stored_bytes_max),
            grammars: OnceLock::new(),
            preparations: Arc::new(Semaphore::new(config.preparations_max)),
            buffered_kibibytes: Arc::new(Semaphore::new(config.buffered_bytes_max >> 10)),
            config,
            stopping: AtomicBool::new(false),
        })
    }

    /// Whether shutdown has begun.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Checks that a prompt can be generated from; `param` is the field that it came from.
    ///
    /// # Errors
    /// A 400 if the prompt is empty, or leaves no room for an output token.
    pub(super) fn check_prompt(&self, param: &str, tokens: &[TokenId]) -> Result<(), ApiError> {
        let context = self.model.limits.context_tokens_max as usize;
        if tokens.is_empty() {
            let message = format!("Invalid value for '{param}': the prompt has no tokens; send some text.");
            return Err(ApiError::of(ErrorCode::InvalidValue, param, message));
        }
        if tokens.len() >= context {
            // Agents of different houses look for different parts of this sentence.
            let message = format!(
                "prompt is too long: {} tokens > {} maximum. This model's maximum context length is {context} \
                 tokens, of which the output needs one; shorten the prompt.",
                tokens.len(),
                context - 1
            );
            return Err(ApiError::of(ErrorCode::ContextLengthExceeded, param, message));
        }
        Ok(())
    }

    /// What compiles constraints. The first request that needs it makes it, which takes tens of milliseconds.
    ///
    /// # Errors
    /// An internal one if the core's vocabulary cannot be used.
    pub(super) fn grammars(&self) -> Result<&GrammarCompiler, GrammarError> {
        let made = self.grammars.get_or_init(|| {
            let tokens = self.model.limits.vocabulary;
            let vocabulary = Vocabulary::new(&self.text.tokenizer, &self.model.eos_tokens, tokens);
            GrammarCompiler::new(vocabulary, GrammarLimits::default())
        });
        made.as_ref().map_err(GrammarError::clone)
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Runs a request's parsing, rendering and tokenizing on a worker, at most `preparations_max` of them at one time.
    pub(super) async fn prepare<T: Send + 'static>(
        self: &Arc<Self>,
        body: BufferedBody,
        work: impl FnOnce(&Self, &[u8]) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let permits = Arc::clone(&self.preparations);
        let permit = permits.acquire_owned().await.expect("the semaphore is never closed");
        let service = Arc::clone(self);
        let worker = tokio::task::spawn_blocking(move || {
            // The permit is the worker's: a client that leaves does not make room while its work still runs.
            let _permit = permit;
            work(&service, &body.bytes)
        });
        worker.await.map_err(|error| ApiError::internal(format!("preparing the request: {error}")))?
    }
}

/// Seconds since 1970.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

/// An identifier with 96 random bits.
pub(super) fn random_id(prefix: &str) -> Result<String, ApiError> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(bytes.iter().fold(prefix.to_owned(), |id, byte| format!("{id}{byte:02x}")))
}
