//! The one path from prompts to answers: submit to the engine, read what comes back, report.
//!
//! Every API, streaming or not, drives a [`Running`]. Dropping it cancels whatever still runs. Choices are
//! polled in turn, so that none starves the others of a response.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::{Instant, timeout_at};

use super::answer::{Answer, ChoiceEvent, Finish, Usage};
use super::choice::Choice;
use super::error::{ApiError, ErrorCode};
use super::fields::invalid;
use super::options::GenerationOptions;
use super::reading::Protocol;
use super::service::Service;
use crate::grammar::Constraint;
use crate::ids::{ClientId, TokenId};
use crate::runtime::engine::{EngineError, GenerationRequest};

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
    /// How its answers are read; `None` reads them as text.
    pub protocol: Option<Protocol>,
    /// What its answers must spell.
    pub constraint: Option<Box<Constraint>>,
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
    /// When the request has taken too long.
    deadline: Option<Instant>,
}

impl Running {
    /// Submits every choice for `client`.
    ///
    /// # Errors
    /// What the engine refuses one of them with; nothing of the request is left running then.
    pub async fn start(
        service: &Arc<Service>,
        plan: GenerationPlan,
        client: ClientId,
    ) -> Result<Self, ApiError> {
        if service.is_stopping() {
            return Err(EngineError::ShuttingDown.into());
        }
        let (asked, asked_max) =
            (plan.prompts.len() * plan.options.n as usize, service.engine.client_waiting_max());
        if asked > asked_max as usize {
            // Waiting would not help: not even an idle server has room for so many.
            let requirement =
                format!("a request may ask for {asked_max} answers here, and this one asks for {asked}");
            return Err(invalid("n", &requirement));
        }
        let deadline = service.config.request_timeout.map(|limit| Instant::now() + limit);
        let context = service.model.limits.context_tokens_max as usize;
        let mut choices = Vec::with_capacity(plan.prompts.len() * plan.options.n as usize);
        for prompt in &plan.prompts {
            let room = u32::try_from(context.saturating_sub(prompt.tokens.len())).unwrap_or(u32::MAX);
            let output_tokens_max = plan.options.output_tokens_max.unwrap_or(room).min(room);
            let limit = match plan.options.output_tokens_max {
                Some(asked) if asked <= room => Finish::Length,
                _ => Finish::Context,
            };
            for _ in 0..plan.options.n {
                let seed = plan.options.sampling.seed.wrapping_add(choices.len() as u64);
                let mut sampling = plan.options.sampling.clone();
                sampling.seed = seed;
                let request = GenerationRequest {
                    client,
                    prompt: Arc::clone(&prompt.tokens),
                    endpoints: Arc::clone(&prompt.endpoints),
                    cache_salt: plan.options.cache_salt.clone(),
                    sampling,
                    output_tokens_max,
                    ignore_eos: plan.options.ignore_eos,
                    logprobs: plan.logprobs,
                    constraint: prompt.constraint.clone(),
                };
                let generation = match output_tokens_max {
                    0 => None,
                    _ => Some(service.engine.submit(request).await?),
                };
                choices.push(Choice::new(generation, &plan, prompt, limit.clone())?);
            }
        }
        Ok(Self {
            service: Arc::clone(service),
            choices,
            choices_per_prompt: plan.options.n as usize,
            prompt_tokens: plan.prompts.iter().map(|prompt| prompt.tokens.len()).sum(),
            turn: 0,
            deadline,
        })
    }

    /// Waits until the engine has begun with one of the choices. Dropping the future loses nothing.
    ///
    /// # Errors
    /// What it refuses one of them with.
    pub async fn admitted(&mut self) -> Result<(), ApiError> {
        within(self.deadline, poll_fn(|context| self.poll_admitted(context))).await
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
        let mut answers = vec![Answer::empty(); self.choices.len()];
        while let Some((index, event)) = self.next().await? {
            answers[index].take(event);
        }
        Ok(answers)
    }

    /// The next event of any choice and the choice's index; `None` once all have finished. Dropping the future
    /// loses nothing.
    ///
    /// # Errors
    /// The first failure of a choice.
    pub async fn next(&mut self) -> Result<Option<(usize, ChoiceEvent)>, ApiError> {
        within(self.deadline, poll_fn(|context| self.poll_next(context))).await
    }

    /// What has been used so far.
    pub fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self
                .choices
                .iter()
                .step_by(self.choices_per_prompt)
                .map(|choice| choice.cached_tokens().unwrap_or(0) as usize)
                .sum(),
            completion_tokens: self.choices.iter().map(|choice| choice.counts().all).sum(),
            reasoning_tokens: self.choices.iter().map(|choice| choice.counts().reasoning).sum(),
        }
    }

    fn poll_admitted(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ApiError>> {
        for choice in &mut self.choices {
            while choice.cached_tokens().is_none() && choice.is_running() {
                match choice.poll_engine(&self.service, context) {
                    Poll::Ready(result) => result?,
                    Poll::Pending => break,
                }
            }
            if choice.cached_tokens().is_some() || !choice.is_running() {
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
                if let Some(event) = choice.pop_event() {
                    self.turn = (index + 1) % count;
                    return Poll::Ready(Ok(Some((index, event))));
                }
                if !choice.is_running() {
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

/// Waits no longer than to the deadline, if there is one.
async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    let Some(deadline) = deadline else { return work.await };
    timeout_at(deadline, work).await.unwrap_or_else(|_| {
        let message = "The request took longer than this server allows; ask for less output or retry later.";
        Err(ApiError::new(ErrorCode::GenerationTimeout, message))
    })
}
