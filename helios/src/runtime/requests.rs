//! Requests as the model thread keeps them: what was asked, who listens, and what they are told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::core::contract::Limits;
use crate::ids::{RequestId, TokenId};
use crate::schedule::{Ending, Finish, Rejection};

use super::engine::{
    EngineError, FinishReason, GenerationEvent, GenerationRequest, SampledToken, Submission,
};
use super::metrics::EngineHistograms;
use super::places::WaitingPlace;

/// A request and its listener.
#[derive(Debug)]
struct Client {
    request: GenerationRequest,
    events: mpsc::Sender<GenerationEvent>,
    /// Room for the last event, taken at the start so that it always arrives.
    last: mpsc::OwnedPermit<GenerationEvent>,
    cancelled: Arc<AtomicBool>,
    /// Held until admission.
    place: Option<WaitingPlace>,
    is_slow: bool,
    submitted: Instant,
    last_token: Option<Instant>,
    tokens: u32,
}

/// Every request that has not ended, and counts of those that have.
#[derive(Debug)]
pub(super) struct Requests {
    clients: BTreeMap<RequestId, Client>,
    histograms: Arc<EngineHistograms>,
    pub(super) finished: u64,
    pub(super) cancelled: u64,
    pub(super) failed: u64,
    pub(super) tokens: u64,
}

impl Requests {
    pub(super) fn new(histograms: Arc<EngineHistograms>) -> Self {
        Self { clients: BTreeMap::new(), histograms, finished: 0, cancelled: 0, failed: 0, tokens: 0 }
    }

    /// Keeps a submission; `false` when nobody listens to it any more.
    pub(super) fn insert(&mut self, submission: Submission) -> bool {
        let Submission { id, request, submitted, events, cancelled, place } = submission;
        let Ok(last) = events.clone().try_reserve_owned() else {
            self.cancelled += 1;
            return false;
        };
        let client = Client {
            request,
            events,
            last,
            cancelled,
            place: Some(place),
            is_slow: false,
            submitted,
            last_token: None,
            tokens: 0,
        };
        self.clients.insert(id, client);
        true
    }

    /// Tells a submission that it is not taken.
    pub(super) fn refuse(&mut self, submission: &Submission, error: EngineError) {
        self.failed += 1;
        if submission.events.try_send(GenerationEvent::Failed(error)).is_err() {
            tracing::debug!(request = %submission.id, "a refused request's listener has gone");
        }
    }

    /// Every request that the scheduler has not told an end is here.
    pub(super) fn request(&self, id: RequestId) -> &GenerationRequest {
        &self.clients.get(&id).expect("a request is initialized before it ends").request
    }

    /// Appends the requests whose listener has gone or has fallen behind.
    pub(super) fn leavers(&self, into: &mut Vec<RequestId>) {
        into.extend(self.clients.iter().filter(|(_, client)| client.leaves()).map(|(&id, _)| id));
    }

    pub(super) fn admitted(&mut self, id: RequestId, cached_tokens: u32, now: Instant) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.place = None;
        self.histograms.queue_time.observe_time(now.duration_since(client.submitted));
        self.histograms.prompt_tokens.observe(client.request.prompt.len() as u64);
        self.histograms.cached_tokens.observe(cached_tokens.into());
        client.tell(GenerationEvent::Admitted { cached_tokens });
    }

    pub(super) fn sampled(&mut self, id: RequestId, token: SampledToken, now: Instant) {
        self.tokens += 1;
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.tokens += 1;
        match client.last_token.replace(now) {
            None => self.histograms.time_to_first_token.observe_time(now.duration_since(client.submitted)),
            Some(last) => self.histograms.inter_token_time.observe_time(now.duration_since(last)),
        }
        client.tell(GenerationEvent::Token(token));
    }

    /// Fails a request for a reason that the scheduler does not know; its cancel follows.
    pub(super) fn fail(&mut self, id: RequestId, error: EngineError) {
        if let Some(client) = self.clients.remove(&id) {
            self.failed += 1;
            client.last.send(GenerationEvent::Failed(error));
        }
    }

    /// Tells a request its end.
    pub(super) fn ended(&mut self, id: RequestId, ending: Ending, now: Instant) {
        let Some(client) = self.clients.remove(&id) else { return };
        client.observe_end(&self.histograms, now);
        let error = match ending {
            Ending::Finished(finish) => {
                self.finished += 1;
                client.last.send(GenerationEvent::Finished(finish_reason(finish)));
                return;
            }
            Ending::Cancelled if client.is_slow => {
                EngineError::SlowConsumer { events_max: client.events.max_capacity() as u32 }
            }
            Ending::Cancelled => {
                self.cancelled += 1;
                return;
            }
            Ending::Rejected(rejection) => rejected(rejection),
            Ending::ShutDown => EngineError::ShuttingDown,
        };
        self.failed += 1;
        client.last.send(GenerationEvent::Failed(error));
    }

    /// Fails every request that is left.
    pub(super) fn fail_all(&mut self, error: &EngineError, now: Instant) {
        while let Some((_, client)) = self.clients.pop_first() {
            client.observe_end(&self.histograms, now);
            self.failed += 1;
            client.last.send(GenerationEvent::Failed(error.clone()));
        }
    }
}

impl Client {
    fn leaves(&self) -> bool {
        self.is_slow || self.cancelled.load(Ordering::Acquire) || self.events.is_closed()
    }

    fn observe_end(&self, histograms: &EngineHistograms, now: Instant) {
        let is_admitted = self.place.is_none();
        if is_admitted {
            histograms.request_duration.observe_time(now.duration_since(self.submitted));
            histograms.generated_tokens.observe(self.tokens.into());
        }
    }

    /// A listener that has gone is found by `leaves`; one that has no room is behind and loses its request.
    fn tell(&mut self, event: GenerationEvent) {
        if let Err(TrySendError::Full(_)) = self.events.try_send(event) {
            self.is_slow = true;
        }
    }
}

/// Refuses what would make a program read or write outside its buffers, or sample from no distribution.
///
/// # Errors
/// `Unsupported`, naming the field.
pub(super) fn check(request: &GenerationRequest, limits: &Limits) -> Result<(), EngineError> {
    let sampling = &request.sampling;
    let is_token = |token: &TokenId| token.0 < limits.vocabulary;
    let finite = [sampling.presence_penalty, sampling.frequency_penalty];
    let bias_values = sampling.logit_bias.iter().map(|entry| entry.1);
    let problem = if request.prompt.is_empty() || request.output_tokens_max == 0 {
        "the prompt and output_tokens_max must not be empty".into()
    } else if let Some(token) = request.prompt.iter().find(|token| !is_token(token)) {
        format!("prompt token {token} is not below the vocabulary's {}", limits.vocabulary)
    } else if let Some((token, _)) = sampling.logit_bias.iter().find(|(token, _)| !is_token(token)) {
        format!("logit_bias token {token} is not below the vocabulary's {}", limits.vocabulary)
    } else if sampling.logit_bias.len() > limits.bias_entries_max as usize {
        let entries = sampling.logit_bias.len();
        format!("logit_bias has {entries} entries and the core takes {}", limits.bias_entries_max)
    } else if let Some(count) = request.logprobs.filter(|&count| count > limits.logprobs_max) {
        format!("{count} logprobs are asked for and the core reports {}", limits.logprobs_max)
    } else if request.logprobs.is_some() && limits.logprobs_max == 0 {
        "logprobs are asked for and the core reports none".into()
    } else if !(sampling.temperature.is_finite() && sampling.temperature > 0.0) {
        format!("temperature is {} and must be positive", sampling.temperature)
    } else if !(sampling.top_p > 0.0 && sampling.top_p <= 1.0) {
        format!("top_p is {} and must be above 0 and at most 1", sampling.top_p)
    } else if !(0.0..=1.0).contains(&sampling.min_p) {
        format!("min_p is {} and must be from 0 to 1", sampling.min_p)
    } else if !(sampling.repetition_penalty.is_finite() && sampling.repetition_penalty > 0.0) {
        format!("repetition_penalty is {} and must be positive", sampling.repetition_penalty)
    } else if !finite.into_iter().chain(bias_values).all(f32::is_finite) {
        "penalties and logit_bias values must be finite".into()
    } else {
        return Ok(());
    };
    Err(EngineError::Unsupported(problem))
}

fn finish_reason(finish: Finish) -> FinishReason {
    match finish {
        Finish::EndToken => FinishReason::EndToken,
        Finish::Length => FinishReason::Length,
    }
}

fn rejected(rejection: Rejection) -> EngineError {
    match rejection {
        Rejection::QueueFull { waiting } => EngineError::QueueFull { waiting },
        Rejection::Empty => {
            EngineError::Unsupported("the prompt and output_tokens_max must not be empty".into())
        }
        Rejection::PromptTooLong { prompt_tokens, context_tokens_max } => {
            EngineError::PromptTooLong { prompt_tokens, context_tokens_max }
        }
        Rejection::PoolTooSmall { pages, pages_max } => EngineError::PoolTooSmall { pages, pages_max },
        Rejection::ShuttingDown => EngineError::ShuttingDown,
    }
}
