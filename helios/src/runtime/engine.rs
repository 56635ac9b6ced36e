//! The engine handle: what the server may ask of the model thread, and the events that come back.
//!
//! An [`Engine`] is a cheap handle; [`EngineReceiver`] is its other end, owned by the model thread. Every queue
//! is bounded: requests that wait are counted from [`Engine::submit`] to their admission, and the command queue
//! holds that many, so a command never waits for room. Dropping a [`Generation`] cancels its request in whatever
//! phase it is: the model thread reads the request's flag in every pass, and it makes passes as long as it has
//! a request, so a cancel is neither queued nor lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::sync::{mpsc, watch};

use crate::grammar::Constraint;
use crate::ids::{ClientId, RequestId, TokenId};
use crate::tiers::{StatsReader, TierStats};

use super::clock::now;
use super::metrics::EngineHistograms;
use super::places::{WaitingPlace, WaitingPlaces};

/// Commands beside submissions that the queue has room for.
const CONTROL_COMMANDS_MAX: usize = 8;
/// Events beside tokens that a request sends: `Admitted`, then `Finished` or `Failed`.
const CONTROL_EVENTS_MAX: u32 = 2;

/// Bounds of the handle's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Requests submitted and not yet admitted.
    pub waiting_max: u32,
    /// Those of one client.
    pub client_waiting_max: u32,
    /// Tokens that a request may be ahead of its reader; a request that can only make fewer holds room for fewer.
    pub events_max: u32,
}

impl Default for EngineLimits {
    fn default() -> Self {
        Self { waiting_max: 1024, client_waiting_max: 1024, events_max: 4096 }
    }
}

/// Makes a handle and the end that the model thread owns.
pub fn channel(limits: EngineLimits) -> (Engine, EngineReceiver) {
    let capacity = limits.waiting_max as usize + CONTROL_COMMANDS_MAX;
    let (command_sender, command_receiver) = mpsc::channel(capacity);
    let (stats_sender, stats_receiver) = watch::channel(EngineStats::default());
    let histograms = Arc::new(EngineHistograms::default());
    let failure = Arc::new(OnceLock::new());
    let tiers = Arc::new(OnceLock::new());
    let waker = command_sender.downgrade();
    let engine = Engine {
        commands: command_sender,
        stats: stats_receiver,
        histograms: Arc::clone(&histograms),
        failure: Arc::clone(&failure),
        tiers: Arc::clone(&tiers),
        places: WaitingPlaces::new(limits),
        ids: Arc::new(AtomicU64::new(1)),
        limits,
    };
    let receiver = EngineReceiver {
        commands: command_receiver,
        stats: stats_sender,
        histograms,
        limits,
        waker,
        tiers,
        failure,
    };
    (engine, receiver)
}

/// A cheap, cloneable handle to the model thread.
#[derive(Clone, Debug)]
pub struct Engine {
    commands: mpsc::Sender<EngineCommand>,
    stats: watch::Receiver<EngineStats>,
    histograms: Arc<EngineHistograms>,
    failure: Arc<OnceLock<EngineError>>,
    tiers: Arc<OnceLock<StatsReader>>,
    places: WaitingPlaces,
    ids: Arc<AtomicU64>,
    limits: EngineLimits,
}

impl Engine {
    /// Queues a request or refuses it at once; it never waits for the model thread.
    ///
    /// # Errors
    /// `QueueFull`, `ShareFull`, `ShuttingDown`, or `Execution` once the engine has failed. What the model thread finds wrong with a
    /// request comes as its first event, [`GenerationEvent::Failed`].
    pub async fn submit(&self, request: GenerationRequest) -> Result<Generation, EngineError> {
        if let Some(failure) = self.failure.get() {
            return Err(failure.clone());
        }
        let place = self.places.take(request.client)?;
        let id = RequestId(self.ids.fetch_add(1, Ordering::Relaxed));
        let capacity = request.output_tokens_max.min(self.limits.events_max) + CONTROL_EVENTS_MAX;
        let (event_sender, events) = mpsc::channel(capacity as usize);
        let cancelled = Arc::new(AtomicBool::new(false));
        let guard = CancelGuard { cancelled: Arc::clone(&cancelled) };
        let submitted = now();
        let submission = Submission { id, request, submitted, events: event_sender, cancelled, place };
        match self.commands.try_send(EngineCommand::Submit(submission)) {
            Ok(()) => Ok(Generation { id, events, guard }),
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(EngineError::QueueFull { waiting: self.limits.waiting_max })
            }
            Err(mpsc::error::TrySendError::Closed(_)) => {
                Err(self.failure.get().cloned().unwrap_or(EngineError::ShuttingDown))
            }
        }
    }

    /// Requests of one client that may wait at one time.
    pub fn client_waiting_max(&self) -> u32 {
        self.limits.client_waiting_max
    }

    /// The model thread's last published counters; never waits for it.
    pub fn stats(&self) -> EngineStats {
        let mut stats = self.stats.borrow().clone();
        stats.requests_waiting = self.places.taken();
        stats.requests_refused = self.places.refused();
        // Tiers go on while the model thread has nothing to do.
        stats.tiers = self.tiers.get().map(StatsReader::read).unwrap_or_default();
        stats
    }

    /// What the model thread observes, as it does.
    pub fn histograms(&self) -> &Arc<EngineHistograms> {
        &self.histograms
    }

    /// Stops admission, lets running requests finish for `drain_timeout_ms`, cancels the rest, and returns when every
    /// request has its last event. The device is let go of once the worker is joined.
    pub async fn shutdown(&self, drain_timeout_ms: u64) {
        // A refused send means that the model thread has ended already, which is what was asked for.
        if self.commands.send(EngineCommand::Shutdown { drain_timeout_ms }).await.is_ok() {
            self.commands.closed().await;
        }
    }
}

/// A submitted request. Dropping it cancels the request.
#[derive(Debug)]
pub struct Generation {
    pub id: RequestId,
    /// Ends after `Finished` or `Failed`; ending without one means that the model thread is gone.
    pub events: mpsc::Receiver<GenerationEvent>,
    pub guard: CancelGuard,
}

/// Cancels its request when it is dropped; harmless once the request has ended.
#[derive(Debug)]
pub struct CancelGuard {
    cancelled: Arc<AtomicBool>,
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Release);
    }
}

/// A request on its way to the model thread.
#[derive(Debug)]
pub struct Submission {
    pub id: RequestId,
    pub request: GenerationRequest,
    pub submitted: Instant,
    pub events: mpsc::Sender<GenerationEvent>,
    /// Set when the request's [`CancelGuard`] is dropped.
    pub cancelled: Arc<AtomicBool>,
    /// Held until admission.
    pub place: WaitingPlace,
}

impl Submission {
    /// Whether nobody wants the events any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire) || self.events.is_closed()
    }
}

/// What the handle sends to the model thread.
#[derive(Debug)]
pub enum EngineCommand {
    Submit(Submission),
    /// Something beside the commands waits for the model thread.
    Wake,
    /// Stop admitting; finish what runs within `drain_timeout_ms`, then cancel the rest and end.
    Shutdown {
        drain_timeout_ms: u64,
    },
}

/// The model thread's end of the handle.
#[derive(Debug)]
pub struct EngineReceiver {
    pub commands: mpsc::Receiver<EngineCommand>,
    /// Where the model thread publishes its counters after every pass.
    pub stats: watch::Sender<EngineStats>,
    pub histograms: Arc<EngineHistograms>,
    pub limits: EngineLimits,
    waker: mpsc::WeakSender<EngineCommand>,
    tiers: Arc<OnceLock<StatsReader>>,
    failure: Arc<OnceLock<EngineError>>,
}

impl EngineReceiver {
    /// Has the handle report what tiers do; the first call counts.
    pub fn watch_tiers(&self, stats: StatsReader) {
        self.tiers.get_or_init(|| stats);
    }

    /// A sender that can wake the model thread and does not keep it alive.
    pub fn waker(&self) -> mpsc::WeakSender<EngineCommand> {
        self.waker.clone()
    }

    /// Keeps the first failure of execution; every later submission is refused with it.
    pub fn fail(&self, failure: EngineError) {
        // Only the first failure tells the cause, so a later one is dropped.
        self.failure.get_or_init(|| failure);
        self.stats.send_modify(|stats| stats.failed = true);
    }
}

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

#[cfg(test)]
impl SamplingParameters {
    /// Leaves the distribution as it is.
    pub(crate) fn neutral() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// One sequence to generate.
#[derive(Clone, Debug)]
pub struct GenerationRequest {
    /// Whose turn it takes.
    pub client: ClientId,
    /// Not empty, and shorter than the core's context.
    pub prompt: Arc<[TokenId]>,
    /// The ends of completed messages, in tokens from the prompt's start: ascending, and strictly inside the prompt.
    pub endpoints: Arc<[u32]>,
    /// Requests with different salts never share cached prefixes.
    pub cache_salt: Option<Arc<str>>,
    pub sampling: SamplingParameters,
    /// Tokens to generate at most; at least 1. The engine clamps it to the context.
    pub output_tokens_max: u32,
    /// Whether an end token is an ordinary token.
    pub ignore_eos: bool,
    /// Alternatives to report with each token; `None` for no logprobs.
    pub logprobs: Option<u32>,
    /// What the tokens must spell; an end token ends the request then, whatever `ignore_eos` says.
    pub constraint: Option<Box<Constraint>>,
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
    /// The client has as many requests waiting as one may have.
    #[error(
        "{waiting} requests of this client are waiting already, which is its share of the queue; retry later"
    )]
    ShareFull { waiting: u32 },
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
    /// The request's constraint cannot be followed any further.
    #[error("{0}")]
    Constraint(String),
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
    /// Pages of cached checkpoints; those that no request uses are given up when pages are short.
    pub pages_cached: u32,
    pub pages_max: u32,
    pub snapshots_free: u32,
    /// Snapshot rows of cached checkpoints.
    pub snapshots_cached: u32,
    pub snapshots_max: u32,
    pub requests_finished: u64,
    pub requests_cancelled: u64,
    pub requests_failed: u64,
    /// Requests that found the queue, or their client's share of it, full; they are among none of the others.
    pub requests_refused: u64,
    /// Requests that gave back their pages to be computed again later.
    pub preemptions: u64,
    /// Tokens that prefill computed, those of preempted histories included.
    pub prompt_tokens_computed: u64,
    /// Prompt tokens that came from the cache instead.
    pub prompt_tokens_cached: u64,
    pub checkpoints_published: u64,
    /// Captures of a prefix that had a checkpoint already.
    pub checkpoints_duplicate: u64,
    /// Captures that found every snapshot row in use.
    pub checkpoints_skipped: u64,
    /// Checkpoints given up between two that stayed.
    pub checkpoints_thinned: u64,
    pub evictions_for_pages: u64,
    pub evictions_for_snapshots: u64,
    /// Checkpoints that were brought back from a tier.
    pub fetches: u64,
    /// Fetches that failed, took too long or made room.
    pub fetches_failed: u64,
    pub tiers: TierStats,
    pub tokens_generated: u64,
    /// Set once execution has failed.
    pub failed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> GenerationRequest {
        GenerationRequest {
            client: ClientId(0),
            prompt: Arc::from([TokenId(1)]),
            endpoints: Arc::default(),
            cache_salt: None,
            sampling: SamplingParameters::neutral(),
            output_tokens_max: 4,
            ignore_eos: false,
            logprobs: None,
            constraint: None,
        }
    }

    #[tokio::test]
    async fn the_waiting_bound_refuses_at_once_and_admission_makes_room() {
        let (engine, mut receiver) = channel(EngineLimits { waiting_max: 2, ..EngineLimits::default() });
        let _first = engine.submit(request()).await.unwrap();
        let _second = engine.submit(request()).await.unwrap();
        assert_eq!(engine.submit(request()).await.unwrap_err(), EngineError::QueueFull { waiting: 2 });
        assert_eq!((engine.stats().requests_waiting, engine.stats().requests_refused), (2, 1));
        drop(receiver.commands.recv().await.unwrap());
        engine.submit(request()).await.unwrap();
    }

    #[tokio::test]
    async fn dropping_either_half_of_a_generation_cancels() {
        let (engine, mut receiver) = channel(EngineLimits::default());
        for drop_events in [false, true] {
            let generation = engine.submit(request()).await.unwrap();
            let Some(EngineCommand::Submit(submission)) = receiver.commands.recv().await else {
                panic!("a submission was sent");
            };
            assert!(!submission.is_cancelled());
            let Generation { events, guard, .. } = generation;
            if drop_events {
                drop(events)
            } else {
                drop(guard)
            }
            assert!(submission.is_cancelled());
        }
    }

    #[tokio::test]
    async fn a_failed_or_ended_engine_refuses_submissions() {
        let (engine, receiver) = channel(EngineLimits::default());
        receiver.fail(EngineError::Execution("first".into()));
        receiver.fail(EngineError::Execution("second".into()));
        assert_eq!(engine.submit(request()).await.unwrap_err(), EngineError::Execution("first".into()));
        assert!(engine.stats().failed);

        let (engine, receiver) = channel(EngineLimits::default());
        drop(receiver);
        assert_eq!(engine.submit(request()).await.unwrap_err(), EngineError::ShuttingDown);
        engine.shutdown(0).await;
    }
}
