//! The engine handle: what the server may ask of the model thread, and the events that come back.
//!
//! An [`Engine`] is a cheap handle; [`EngineReceiver`] is its other end, owned by the model thread. Both queues
//! are bounded. Dropping a [`Generation`] cancels its request in whatever phase it is.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::ids::{RequestId, TokenId};

/// How a distribution is filtered; units and neutral values as in the OpenAI API.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParameters {
    /// Positive.
    pub temperature: f32,
    /// 0 disables.
    pub top_k: u32,
    /// In (0, 1]; 1 disables.
    pub top_p: f32,
    /// In [0, 1]; 0 disables.
    pub min_p: f32,
    /// Positive; 1 is neutral.
    pub repetition_penalty: f32,
    /// 0 is neutral.
    pub presence_penalty: f32,
    /// 0 is neutral.
    pub frequency_penalty: f32,
    /// Added to the named tokens' logits; at most the core's `bias_entries_max`.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// The random stream.
    pub seed: u64,
}

/// One sequence to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationRequest {
    /// Not empty, and shorter than the core's context.
    pub prompt: Arc<[TokenId]>,
    pub sampling: SamplingParameters,
    /// Tokens to generate at most; at least 1. The engine clamps it to the context.
    pub output_tokens_max: u32,
    /// Whether an end token is an ordinary token.
    pub ignore_eos: bool,
    /// Alternatives to report with each token; `None` for no logprobs.
    pub logprobs: Option<u32>,
}

/// A sampled token.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledToken {
    pub token: TokenId,
    pub logprobs: Option<TokenLogprobs>,
}

/// Natural-log probabilities of the unprocessed distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    pub sampled: f32,
    /// Most likely first.
    pub alternatives: Vec<(TokenId, f32)>,
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model sampled an end token; that token is the last one reported.
    EndToken,
    /// The output limit or the context was reached.
    Length,
}

/// What a request sees, in this order: `Admitted`, `Token`*, then one of `Finished` or `Failed`.
#[derive(Clone, Debug, PartialEq)]
pub enum GenerationEvent {
    /// The request holds its resources.
    Admitted {
        /// Prompt tokens that came from the cache.
        cached_tokens: u32,
    },
    Token(SampledToken),
    Finished(FinishReason),
    Failed(EngineError),
}

/// Why the engine cannot run, or could not finish, a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The admission queue is full; the caller may retry.
    #[error("{waiting} requests are waiting already, and the queue holds no more; retry later")]
    QueueFull { waiting: u32 },
    /// The prompt and one output token exceed the context.
    #[error(
        "the prompt has {prompt_tokens} tokens and the context holds {context_tokens_max}; shorten the prompt"
    )]
    PromptTooLong { prompt_tokens: u32, context_tokens_max: u32 },
    /// The whole page pool is smaller than the request needs.
    #[error(
        "the request needs {pages} KV pages and the server has {pages_max}; shorten the prompt or raise --memory"
    )]
    PoolTooSmall { pages: u32, pages_max: u32 },
    /// A request field that the core cannot honour.
    #[error("{0}")]
    Unsupported(String),
    /// The consumer did not read its events.
    #[error("the reader fell more than {events_max} events behind")]
    SlowConsumer { events_max: u32 },
    /// The server is stopping.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// Execution failed; the engine is unhealthy from here on.
    #[error("execution failed: {0}")]
    Execution(String),
}

/// Counters and gauges of the engine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct EngineStats {
    pub requests_running: u32,
    pub requests_waiting: u32,
    pub slots_free: u32,
    pub slots_max: u32,
    pub pages_free: u32,
    pub pages_max: u32,
    pub requests_finished: u64,
    pub requests_cancelled: u64,
    pub requests_failed: u64,
    pub prompt_tokens_computed: u64,
    pub tokens_generated: u64,
    /// Set once execution has failed.
    pub failed: bool,
}

/// What the handle sends to the model thread.
#[derive(Debug)]
pub enum EngineCommand {
    Submit {
        id: RequestId,
        request: GenerationRequest,
        events: mpsc::Sender<GenerationEvent>,
    },
    Cancel {
        id: RequestId,
    },
    Stats {
        reply: oneshot::Sender<EngineStats>,
    },
    /// Stop admitting; finish what runs within `drain_timeout_ms`, then cancel the rest and end.
    Shutdown {
        drain_timeout_ms: u64,
    },
}

/// The model thread's end of the queue.
#[derive(Debug)]
pub struct EngineReceiver {
    pub commands: mpsc::Receiver<EngineCommand>,
}
