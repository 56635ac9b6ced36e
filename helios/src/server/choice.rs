//! One sequence: the engine's tokens become text, the text what it tells.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use super::answer::{ChoiceEvent, Finish};
use super::error::ApiError;
use super::generate::{GenerationPlan, Prompt};
use super::logprobs::TokenReport;
use super::reading::Reader;
use super::service::Service;
use crate::parse::OutputEvent;
use crate::runtime::engine::{EngineError, FinishReason, Generation, GenerationEvent, SampledToken};
use crate::text::{IncrementalDecoder, StopMatcher};

#[derive(Debug)]
pub(super) struct Choice {
    /// `None` once the sequence has ended; dropping it cancels.
    generation: Option<Generation>,
    decoder: IncrementalDecoder,
    stop: StopMatcher,
    reader: Reader,
    ignore_eos: bool,
    /// What ends the sequence where its length does.
    limit: Finish,
    /// Set at admission.
    cached_tokens: Option<u32>,
    counts: TokenCounts,
    /// Whether tokens are reported, and so code points counted.
    reporting: bool,
    /// Code points decoded and released so far.
    decoded: usize,
    released: usize,
    /// Reports whose text is not released yet.
    reports: VecDeque<TokenReport>,
    /// Reports whose text is released and not told yet.
    untold: Vec<TokenReport>,
    events: VecDeque<ChoiceEvent>,
}

/// A sequence's tokens so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TokenCounts {
    pub all: usize,
    pub reasoning: usize,
    /// The last ones, of which it is not decided yet what they tell.
    undecided: usize,
}

impl Choice {
    /// A choice without a generation may not have any tokens.
    ///
    /// # Errors
    /// As [`Reader::new`].
    pub fn new(
        generation: Option<Generation>,
        plan: &GenerationPlan,
        prompt: &Prompt,
        limit: Finish,
    ) -> Result<Self, ApiError> {
        let finished = generation.is_none().then(|| ChoiceEvent::Finished(limit.clone()));
        Ok(Self {
            generation,
            decoder: IncrementalDecoder::continuation(),
            stop: StopMatcher::new(plan.options.stop.clone()),
            reader: Reader::new(prompt.protocol.as_ref())?,
            ignore_eos: plan.options.ignore_eos,
            limit,
            cached_tokens: None,
            counts: TokenCounts::default(),
            reporting: plan.logprobs.is_some(),
            decoded: 0,
            released: 0,
            reports: VecDeque::new(),
            untold: Vec::new(),
            events: finished.into_iter().collect(),
        })
    }

    pub fn is_running(&self) -> bool {
        self.generation.is_some()
    }

    /// Prompt tokens that were not computed again; known from admission on.
    pub fn cached_tokens(&self) -> Option<u32> {
        self.cached_tokens
    }

    pub fn counts(&self) -> TokenCounts {
        self.counts
    }

    pub fn pop_event(&mut self) -> Option<ChoiceEvent> {
        self.events.pop_front()
    }

    /// Takes one engine event.
    pub fn poll_engine(
        &mut self,
        service: &Service,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), ApiError>> {
        let Some(generation) = &mut self.generation else { return Poll::Pending };
        let Poll::Ready(event) = generation.events.poll_recv(context) else { return Poll::Pending };
        Poll::Ready(match event {
            Some(GenerationEvent::Admitted { cached_tokens }) => {
                self.cached_tokens = Some(cached_tokens);
                Ok(())
            }
            Some(GenerationEvent::Token(token)) => self.take_token(service, token),
            Some(GenerationEvent::Finished(reason)) => self.end(match reason {
                FinishReason::EndToken => Finish::End,
                FinishReason::Length => self.limit.clone(),
            }),
            Some(GenerationEvent::Failed(error)) => Err(error.into()),
            None => {
                let text = "the model thread ended in the middle of a request".to_owned();
                Err(EngineError::Execution(text).into())
            }
        })
    }

    fn take_token(&mut self, service: &Service, sampled: SampledToken) -> Result<(), ApiError> {
        self.counts.all += 1;
        self.counts.undecided += 1;
        if !self.ignore_eos && service.model.eos_tokens.contains(&sampled.token) {
            // An end token is no text; `Finished` follows it.
            return Ok(());
        }
        let mut piece = service.text.tokenizer.piece(sampled.token);
        piece.special = piece.special && !self.reader.needs(&piece);
        let text = self.decoder.push(&piece);
        if let Some(logprobs) = sampled.logprobs {
            let length = text.chars().count();
            let report = TokenReport { token: sampled.token, logprobs, start: self.decoded, length };
            self.decoded += length;
            self.reports.push_back(report);
        }
        let released = self.stop.push(&text);
        self.release(released.text, false);
        match released.stop {
            Some(stop) => self.finish(Finish::StopString(stop)),
            None => Ok(()),
        }
    }

    /// Ends the sequence; what was held back is text after all.
    fn end(&mut self, finish: Finish) -> Result<(), ApiError> {
        let decoder = std::mem::take(&mut self.decoder);
        let mut stop = std::mem::replace(&mut self.stop, StopMatcher::new(Vec::new()));
        let released = stop.push(&decoder.finish());
        match released.stop {
            Some(stop) => {
                self.release(released.text, true);
                self.finish(Finish::StopString(stop))
            }
            None => {
                self.release(released.text + &stop.finish(), true);
                self.finish(finish)
            }
        }
    }

    fn finish(&mut self, finish: Finish) -> Result<(), ApiError> {
        self.generation = None;
        // A token that is partly released is reported, those that make up a stop string are not.
        let released = self.released;
        self.untold.extend(self.reports.drain(..).filter(|report| report.start < released));
        let rest = self.reader.finish();
        self.tell(rest);
        if !self.untold.is_empty() {
            self.tell(vec![OutputEvent::Text(String::new())]);
        }
        let finish = match (self.reader.check_calls()?, finish) {
            (true, Finish::End) => Finish::Calls,
            (_, finish) => finish,
        };
        self.events.push_back(ChoiceEvent::Finished(finish));
        Ok(())
    }

    /// Takes released text, and with it reports of the tokens that it completes; at the end, of all that are left.
    fn release(&mut self, text: String, end: bool) {
        // A token that only began a code point waits for the text that it is part of.
        if self.reporting && (end || !text.is_empty()) {
            self.released += text.chars().count();
            let complete = |report: &&TokenReport| end || report.start + report.length <= self.released;
            let count = self.reports.iter().take_while(complete).count();
            self.untold.extend(self.reports.drain(..count));
        }
        let outputs = self.reader.push(text);
        self.tell(outputs);
    }

    fn tell(&mut self, outputs: Vec<OutputEvent>) {
        if let Some(last) = outputs.last() {
            let tokens = std::mem::take(&mut self.counts.undecided);
            if matches!(last, OutputEvent::Reasoning(_)) {
                self.counts.reasoning += tokens;
            }
        }
        for output in outputs {
            let tokens = std::mem::take(&mut self.untold);
            self.events.push_back(ChoiceEvent::Output { output, tokens });
        }
    }
}
