//! The one path from prompts to text: submit to the engine, decode, stop, report.
//!
//! Both completion APIs, streaming or not, drive a [`Running`]. Dropping it cancels whatever still runs. Choices are
//! polled in turn, so that none starves the others of a response.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::error::ApiError;
use super::logprobs::TokenReport;
use super::options::GenerationOptions;
use super::service::Service;
use crate::ids::TokenId;
use crate::runtime::engine::{
    EngineError, FinishReason, Generation, GenerationEvent, GenerationRequest, SampledToken,
};
use crate::text::{IncrementalDecoder, StopMatcher};

/// A validated request: prompts, each continued `options.n` times.
#[derive(Debug)]
pub(super) struct GenerationPlan {
    pub prompts: Vec<Prompt>,
    pub options: GenerationOptions,
    /// Alternatives per token; `None` for no logprobs.
    pub logprobs: Option<u32>,
}

/// One text to continue.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    pub tokens: Arc<[TokenId]>,
    /// Where its completed messages end; [`GenerationRequest::endpoints`].
    pub endpoints: Arc<[u32]>,
}

/// What a choice has to tell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ChoiceEvent {
    Delta {
        text: String,
        tokens: Vec<TokenReport>,
    },
    /// The choice's last event.
    Finished(Finish),
}

/// All that a choice told.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub text: String,
    pub tokens: Vec<TokenReport>,
    pub finish: Finish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    Stop,
    Length,
}

impl Finish {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// Tokens counted over all choices; a prompt counts once, however often it is continued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub completion_tokens: usize,
}

impl Usage {
    pub fn json(self) -> serde_json::Value {
        serde_json::json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        })
    }
}

/// Choices that are being generated.
#[derive(Debug)]
pub(super) struct Running {
    service: Arc<Service>,
    choices: Vec<Choice>,
    choices_per_prompt: usize,
    prompt_tokens: usize,
    /// The choice that is polled first.
    turn: usize,
}

impl Running {
    /// Submits every choice and waits until the engine admits the first.
    ///
    /// # Errors
    /// What the engine refuses one of them with; nothing of the request is left running then.
    pub async fn start(service: &Arc<Service>, plan: GenerationPlan) -> Result<Self, ApiError> {
        if service.is_stopping() {
            return Err(EngineError::ShuttingDown.into());
        }
        let context = service.model.limits.context_tokens_max as usize;
        let mut choices = Vec::with_capacity(plan.prompts.len() * plan.options.n as usize);
        for prompt in &plan.prompts {
            let room = u32::try_from(context.saturating_sub(prompt.tokens.len())).unwrap_or(u32::MAX);
            let output_tokens_max = plan.options.output_tokens_max.unwrap_or(room).min(room);
            for _ in 0..plan.options.n {
                let seed = plan.options.sampling.seed.wrapping_add(choices.len() as u64);
                let mut sampling = plan.options.sampling.clone();
                sampling.seed = seed;
                let request = GenerationRequest {
                    prompt: Arc::clone(&prompt.tokens),
                    endpoints: Arc::clone(&prompt.endpoints),
                    cache_salt: plan.options.cache_salt.clone(),
                    sampling,
                    output_tokens_max,
                    ignore_eos: plan.options.ignore_eos,
                    logprobs: plan.logprobs,
                    constraint: None,
                };
                let generation = match output_tokens_max {
                    0 => None,
                    _ => Some(service.engine.submit(request).await?),
                };
                choices.push(Choice::new(generation, &plan));
            }
        }
        let mut running = Self {
            service: Arc::clone(service),
            choices,
            choices_per_prompt: plan.options.n as usize,
            prompt_tokens: plan.prompts.iter().map(|prompt| prompt.tokens.len()).sum(),
            turn: 0,
        };
        poll_fn(|context| running.poll_admitted(context)).await?;
        Ok(running)
    }

    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    pub fn choices(&self) -> usize {
        self.choices.len()
    }

    /// Waits for all that the choices have to tell, choice by choice.
    ///
    /// # Errors
    /// The first failure of a choice.
    pub async fn whole(&mut self) -> Result<Vec<Answer>, ApiError> {
        let nothing = Answer { text: String::new(), tokens: Vec::new(), finish: Finish::Length };
        let mut answers = vec![nothing; self.choices.len()];
        while let Some((index, event)) = self.next().await? {
            let answer = &mut answers[index];
            match event {
                ChoiceEvent::Delta { text, tokens } => {
                    answer.text.push_str(&text);
                    answer.tokens.extend(tokens);
                }
                ChoiceEvent::Finished(finish) => answer.finish = finish,
            }
        }
        Ok(answers)
    }

    /// The next event of any choice and the choice's index; `None` once all have finished. Dropping the future
    /// loses nothing.
    ///
    /// # Errors
    /// The first failure of a choice.
    pub async fn next(&mut self) -> Result<Option<(usize, ChoiceEvent)>, ApiError> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// What has been used so far.
    pub fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self
                .choices
                .iter()
                .step_by(self.choices_per_prompt)
                .map(|choice| choice.cached_tokens.unwrap_or(0) as usize)
                .sum(),
            completion_tokens: self.choices.iter().map(|choice| choice.tokens).sum(),
        }
    }

    fn poll_admitted(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ApiError>> {
        for choice in &mut self.choices {
            while choice.cached_tokens.is_none() && choice.generation.is_some() {
                match choice.poll_engine(&self.service, context) {
                    Poll::Ready(result) => result?,
                    Poll::Pending => break,
                }
            }
            if choice.cached_tokens.is_some() || choice.generation.is_none() {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<(usize, ChoiceEvent)>, ApiError>> {
        let count = self.choices.len();
        let mut running = false;
        for index in (self.turn..count).chain(0..self.turn) {
            let choice = &mut self.choices[index];
            loop {
                if let Some(event) = choice.events.pop_front() {
                    self.turn = (index + 1) % count;
                    return Poll::Ready(Ok(Some((index, event))));
                }
                if choice.generation.is_none() {
                    break;
                }
                match choice.poll_engine(&self.service, context) {
                    Poll::Ready(result) => result?,
                    Poll::Pending => {
                        running = true;
                        break;
                    }
                }
            }
        }
        if running { Poll::Pending } else { Poll::Ready(Ok(None)) }
    }
}

/// One sequence: its engine events, turned into text.
#[derive(Debug)]
struct Choice {
    /// `None` once the sequence has ended; dropping it cancels.
    generation: Option<Generation>,
    decoder: IncrementalDecoder,
    stop: StopMatcher,
    ignore_eos: bool,
    /// Set at admission.
    cached_tokens: Option<u32>,
    tokens: usize,
    /// Whether tokens are reported, and so code points counted.
    reporting: bool,
    /// Code points decoded and released so far.
    decoded: usize,
    released: usize,
    /// Reports whose text is not released yet.
    reports: VecDeque<TokenReport>,
    events: VecDeque<ChoiceEvent>,
}

impl Choice {
    fn new(generation: Option<Generation>, plan: &GenerationPlan) -> Self {
        let finished = generation.is_none().then_some(ChoiceEvent::Finished(Finish::Length));
        Self {
            generation,
            decoder: IncrementalDecoder::continuation(),
            stop: StopMatcher::new(plan.options.stop.clone()),
            ignore_eos: plan.options.ignore_eos,
            reporting: plan.logprobs.is_some(),
            cached_tokens: None,
            tokens: 0,
            decoded: 0,
            released: 0,
            reports: VecDeque::new(),
            events: finished.into_iter().collect(),
        }
    }

    /// Takes one engine event.
    fn poll_engine(&mut self, service: &Service, context: &mut Context<'_>) -> Poll<Result<(), EngineError>> {
        let Some(generation) = &mut self.generation else { return Poll::Pending };
        let Poll::Ready(event) = generation.events.poll_recv(context) else { return Poll::Pending };
        match event {
            Some(GenerationEvent::Admitted { cached_tokens }) => self.cached_tokens = Some(cached_tokens),
            Some(GenerationEvent::Token(token)) => self.take_token(service, token),
            Some(GenerationEvent::Finished(reason)) => self.end(match reason {
                FinishReason::EndToken => Finish::Stop,
                FinishReason::Length => Finish::Length,
            }),
            Some(GenerationEvent::Failed(error)) => return Poll::Ready(Err(error)),
            None => {
                let text = "the model thread ended in the middle of a request".to_owned();
                return Poll::Ready(Err(EngineError::Execution(text)));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn take_token(&mut self, service: &Service, sampled: SampledToken) {
        self.tokens += 1;
        if !self.ignore_eos && service.model.eos_tokens.contains(&sampled.token) {
            // An end token is no text; `Finished` follows it.
            return;
        }
        let text = self.decoder.push(&service.text.tokenizer.piece(sampled.token));
        if let Some(logprobs) = sampled.logprobs {
            let length = text.chars().count();
            let report = TokenReport { token: sampled.token, logprobs, start: self.decoded, length };
            self.decoded += length;
            self.reports.push_back(report);
        }
        let released = self.stop.push(&text);
        self.emit(released.text, false);
        if released.stopped {
            self.generation = None;
            self.emit_reports_before_stop();
            self.events.push_back(ChoiceEvent::Finished(Finish::Stop));
        }
    }

    /// Ends the sequence; what was held back is text after all.
    fn end(&mut self, finish: Finish) {
        self.generation = None;
        let decoder = std::mem::take(&mut self.decoder);
        let mut stop = std::mem::replace(&mut self.stop, StopMatcher::new(Vec::new()));
        let released = stop.push(&decoder.finish());
        let text = if released.stopped { released.text } else { released.text + &stop.finish() };
        self.emit(text, true);
        let finish = if released.stopped { Finish::Stop } else { finish };
        self.events.push_back(ChoiceEvent::Finished(finish));
    }

    /// Reports released text with the tokens that it completes; at the end, with all that are left.
    fn emit(&mut self, text: String, end: bool) {
        let mut tokens = Vec::new();
        // A token that only began a code point waits for the text that it is part of.
        if self.reporting && (end || !text.is_empty()) {
            self.released += text.chars().count();
            let complete = |report: &&TokenReport| end || report.start + report.length <= self.released;
            let count = self.reports.iter().take_while(complete).count();
            tokens.extend(self.reports.drain(..count));
        }
        if !text.is_empty() || !tokens.is_empty() {
            self.events.push_back(ChoiceEvent::Delta { text, tokens });
        }
    }

    /// Reports tokens that are partly released, and leaves out those that make up the stop string.
    fn emit_reports_before_stop(&mut self) {
        let released = self.released;
        let tokens: Vec<TokenReport> =
            self.reports.drain(..).filter(|report| report.start < released).collect();
        if !tokens.is_empty() {
            self.events.push_back(ChoiceEvent::Delta { text: String::new(), tokens });
        }
    }
}
