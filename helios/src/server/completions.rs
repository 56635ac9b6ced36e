//! `POST /v1/completions`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::Request;
use axum::response::Response;
use serde_json::{Value, json};

use super::answer::{ChoiceEvent, Finish};
use super::body;
use super::constraint::AnswerForm;
use super::error::ApiError;
use super::fields::{Fields, invalid, missing, token_id, unsupported, wrong_type};
use super::generate::{GenerationPlan, Prompt, Running};
use super::logprobs::{self, TokenReport};
use super::options::{CHOICES_MAX, FieldNames, GenerationOptions};
use super::routes::{Caller, Json};
use super::service::{Service, now_s, random_id};
use super::sse::{self, AnswerFormat, Frames};
use crate::grammar::Constraint;
use crate::ids::TokenId;
use crate::parse::OutputEvent;
use crate::text::SpecialTokens;

const PROMPT_TYPES: &str =
    "a string, an array of strings, an array of token ids, or an array of arrays of token ids";

pub(super) async fn create(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let body = body::read(&service, request).await?;
    let (plan, echoes) = service.prepare(body, prepare).await?;
    let format = CompletionFormat {
        id: random_id("cmpl-")?,
        created_s: now_s(),
        model: service.model.id.clone(),
        fingerprint: service.model.fingerprint.clone(),
        logprobs: plan.logprobs.is_some(),
        include_usage: plan.options.include_usage,
        choices_per_prompt: plan.options.n as usize,
        echoes,
    };
    sse::answer(&service, plan, format, caller).await
}

/// Checks a body and tokenizes its prompts; with `echo`, returns each prompt's text too.
fn prepare(service: &Service, body: &[u8]) -> Result<(GenerationPlan, Vec<String>), ApiError> {
    let body = Json::parse(body)?;
    let fields = Fields::root(&body)?;
    let options = GenerationOptions::read(&fields, &service.model, &FieldNames::COMPLETIONS)?;
    let echo = fields.boolean("echo")?.unwrap_or(false);
    let logprobs = fields
        .integer("logprobs", 0..=i64::from(service.model.limits.logprobs_max))?
        .map(|alternatives| alternatives as u32);
    if echo && logprobs.is_some() {
        return Err(unsupported(
            "echo",
            "with 'logprobs' it asks for the prompt's probabilities, which are not computed",
        ));
    }
    if fields.string("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(unsupported("suffix", "text is generated after a prompt, not between two"));
    }
    if fields.integer("best_of", 1..=CHOICES_MAX as i64)?.is_some_and(|best| best != i64::from(options.n)) {
        return Err(unsupported(
            "best_of",
            "all 'n' choices are returned; leave it out or make it equal to 'n'",
        ));
    }
    let prompts = read_prompts(service, &fields)?;
    let choices = prompts.len() * options.n as usize;
    if choices > CHOICES_MAX {
        let requirement =
            format!("prompts times 'n' make {choices} choices, more than the limit of {CHOICES_MAX}");
        return Err(invalid("n", &requirement));
    }
    let echoes = if echo { prompts.iter().map(|prompt| prompt.text(service)).collect() } else { Vec::new() };
    let form = AnswerForm::of_completions(&fields)?;
    let constraint = form.map(|form| form.compile(service, None)).transpose()?;
    let prompts = prompts.into_iter().map(|prompt| prompt.submitted(constraint.clone())).collect();
    Ok((GenerationPlan { prompts, options, logprobs }, echoes))
}

struct ReadPrompt<'a> {
    tokens: Vec<TokenId>,
    /// Absent where the prompt was given as tokens.
    written: Option<&'a str>,
}

impl ReadPrompt<'_> {
    /// A text has no messages, so none of them ends in it.
    fn submitted(self, constraint: Option<Box<Constraint>>) -> Prompt {
        Prompt { tokens: self.tokens.into(), endpoints: Arc::default(), protocol: None, constraint }
    }

    fn text(&self, service: &Service) -> String {
        match self.written {
            Some(text) => text.to_owned(),
            None => service.text.tokenizer.decode(&self.tokens),
        }
    }
}

fn read_prompts<'a>(service: &Service, fields: &Fields<'a>) -> Result<Vec<ReadPrompt<'a>>, ApiError> {
    let prompt = fields.get("prompt").ok_or_else(|| missing("prompt"))?;
    let special = match fields.boolean("add_special_tokens")? {
        Some(false) => SpecialTokens::AsWritten,
        _ => SpecialTokens::Add,
    };
    let several = match prompt {
        Value::Array(items) if items.is_empty() => return Err(invalid("prompt", "it must not be empty")),
        Value::Array(items) if items.iter().any(|item| !item.is_number()) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    if several.len() > CHOICES_MAX {
        let requirement = format!("{} prompts exceed the limit of {CHOICES_MAX}", several.len());
        return Err(invalid("prompt", &requirement));
    }
    several.iter().map(|prompt| read_prompt(service, prompt, special)).collect()
}

fn read_prompt<'a>(
    service: &Service,
    prompt: &'a Value,
    special: SpecialTokens,
) -> Result<ReadPrompt<'a>, ApiError> {
    let vocabulary = service.model.limits.vocabulary;
    let (tokens, written) = match prompt {
        Value::String(text) => {
            let tokens = service.text.tokenizer.encode(text, special);
            (tokens.map_err(|error| ApiError::tokenizing("prompt", &error))?, Some(text.as_str()))
        }
        Value::Array(ids) => {
            let tokens = ids
                .iter()
                .map(|id| token_id(id, vocabulary, "prompt", PROMPT_TYPES))
                .collect::<Result<_, _>>()?;
            (tokens, None)
        }
        other => return Err(wrong_type("prompt", PROMPT_TYPES, other)),
    };
    service.check_prompt("prompt", &tokens)?;
    Ok(ReadPrompt { tokens, written })
}

struct CompletionFormat {
    id: String,
    created_s: u64,
    model: String,
    fingerprint: String,
    logprobs: bool,
    include_usage: bool,
    choices_per_prompt: usize,
    /// The prompts' texts if they are to be echoed, else none.
    echoes: Vec<String>,
}

impl CompletionFormat {
    fn logprobs(&self, running: &Running, tokens: &[TokenReport]) -> Value {
        match self.logprobs {
            true => logprobs::completions(&running.service().text.tokenizer, tokens),
            false => Value::Null,
        }
    }

    fn echo(&self, index: usize) -> &str {
        self.echoes.get(index / self.choices_per_prompt).map_or("", String::as_str)
    }

    fn envelope(&self, choices: Value, usage: Option<Value>) -> String {
        let mut body = json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created_s,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        });
        if let Some(usage) = usage {
            body["usage"] = usage;
        }
        body.to_string()
    }

    fn one(&self, index: usize, text: &str, logprobs: Value, finish: Option<&Finish>) -> String {
        let finish = finish.map(Finish::reason);
        let choice = json!([{"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}]);
        self.envelope(choice, self.include_usage.then_some(Value::Null))
    }
}

impl AnswerFormat for CompletionFormat {
    async fn whole(self, mut running: Running) -> Result<String, ApiError> {
        let answers = running.whole().await?;
        let choices: Vec<Value> = answers
            .iter()
            .enumerate()
            .map(|(index, answer)| {
                let text = format!("{}{}", self.echo(index), answer.text);
                let logprobs = self.logprobs(&running, &answer.tokens);
                let finish = answer.finish.reason();
                json!({"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish})
            })
            .collect();
        let usage = running.usage().json();
        Ok(self.envelope(choices.into(), Some(usage)))
    }

    fn open(&mut self, running: &Running, frames: &mut Frames) {
        for index in 0..running.choices() {
            let echo = self.echo(index);
            if !echo.is_empty() {
                frames.data(self.one(index, echo, Value::Null, None));
            }
        }
    }

    fn event(&mut self, running: &Running, index: usize, event: ChoiceEvent, frames: &mut Frames) {
        frames.data(match event {
            ChoiceEvent::Output { output: OutputEvent::Text(text), tokens } => {
                self.one(index, &text, self.logprobs(running, &tokens), None)
            }
            ChoiceEvent::Output { .. } => unreachable!("a completion's text is read as it is"),
            ChoiceEvent::Finished(finish) => self.one(index, "", Value::Null, Some(&finish)),
        });
    }

    fn close(&mut self, running: &Running, frames: &mut Frames) {
        if self.include_usage {
            frames.data(self.envelope(json!([]), Some(running.usage().json())));
        }
        frames.data("[DONE]");
    }

    fn fail(&mut self, _: &Running, error: &ApiError, frames: &mut Frames) {
        frames.data(error.body());
    }

    fn keep_alive(&mut self, frames: &mut Frames) {
        frames.comment("keepalive");
    }
}
