//! The generation fields that all APIs share: sampling, limits, stops and streaming.
//!
//! Any model's name is taken: one model is served, and agents send several names, of which none is ours.
//! Absent fields take the core's sampling defaults. Every field that is present is checked against its own range.

use std::sync::Arc;

use serde_json::Value;

use super::error::{ApiError, ErrorCode};
use super::fields::{Fields, invalid, wrong_type};
use super::service::ModelProfile;
use crate::ids::TokenId;
use crate::runtime::engine::SamplingParameters;
use crate::text::Recall;

/// Sequences that one request may ask for, over all its prompts.
pub const CHOICES_MAX: usize = 128;
const STOPS_MAX: usize = 16;
const STOP_BYTES_MAX: usize = 1024;
const SALT_BYTES_MAX: usize = 256;
const TEMPERATURE_MAX: f64 = 2.0;
const PENALTY_MAX: f64 = 2.0;
const REPETITION_PENALTY_MAX: f64 = 10.0;
const BIAS_MAX: f64 = 100.0;

/// What `temperature: 0` means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroTemperature {
    /// An error that names `top_k: 1`.
    #[default]
    Reject,
    /// The same as `top_k: 1`.
    Top1,
}

/// What an API calls the fields that the APIs name differently.
#[derive(Clone, Copy, Debug)]
pub struct FieldNames {
    /// The output limit's names; the first that is there wins.
    output_limits: &'static [&'static str],
    /// The smallest output limit that the API accepts.
    output_tokens_min: i64,
    stop: &'static str,
}

impl FieldNames {
    pub const CHAT: Self =
        Self { output_limits: &["max_completion_tokens", "max_tokens"], output_tokens_min: 1, stop: "stop" };
    pub const COMPLETIONS: Self = Self { output_tokens_min: 0, ..Self::CHAT };
    pub const MESSAGES: Self =
        Self { output_limits: &["max_tokens"], output_tokens_min: 1, stop: "stop_sequences" };
    pub const RESPONSES: Self =
        Self { output_limits: &["max_output_tokens"], output_tokens_min: 1, stop: "stop" };
}

/// The shared fields of one request.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationOptions {
    /// The seed is the first choice's; choice i adds i.
    pub sampling: SamplingParameters,
    /// Choices per prompt.
    pub n: u32,
    /// `None` generates up to the context.
    pub output_tokens_max: Option<u32>,
    pub stop: Vec<String>,
    pub ignore_eos: bool,
    /// Requests with different salts never share cached prefixes.
    pub cache_salt: Option<Arc<str>>,
    pub stream: bool,
    /// Whether the stream's last chunk reports usage.
    pub include_usage: bool,
}

impl GenerationOptions {
    /// Reads the shared fields under their names in one API.
    ///
    /// # Errors
    /// A 400 that names the field.
    pub fn read(fields: &Fields<'_>, model: &ModelProfile, names: &FieldNames) -> Result<Self, ApiError> {
        fields.string("model")?;
        Ok(Self {
            sampling: sampling(fields, model)?,
            n: fields.integer("n", 1..=CHOICES_MAX as i64)?.unwrap_or(1) as u32,
            output_tokens_max: output_tokens_max(fields, names)?,
            stop: stops(fields, names.stop)?,
            ignore_eos: fields.boolean("ignore_eos")?.unwrap_or(false),
            cache_salt: cache_salt(fields)?,
            stream: fields.boolean("stream")?.unwrap_or(false),
            include_usage: match fields.object("stream_options")? {
                Some(options) => options.boolean("include_usage")?.unwrap_or(false),
                None => false,
            },
        })
    }

    /// What is private to a salt is not recognized for others, nor for it.
    pub fn recall(&self) -> Recall {
        if self.cache_salt.is_some() { Recall::Forbidden } else { Recall::Allowed }
    }
}

fn sampling(fields: &Fields<'_>, model: &ModelProfile) -> Result<SamplingParameters, ApiError> {
    let defaults = &model.sampling;
    let number = |name, range, default: f32| {
        fields.number(name, range).map(|value| value.map_or(default, |value| value as f32))
    };
    let penalty = |name, default| number(name, -PENALTY_MAX..=PENALTY_MAX, default);
    let mut temperature = number("temperature", 0.0..=TEMPERATURE_MAX, defaults.temperature)?;
    let mut top_k = match fields.integer("top_k", -1..=i64::from(u32::MAX))? {
        Some(value) => u32::try_from(value).unwrap_or(0).min(model.limits.vocabulary),
        None => defaults.top_k,
    };
    if temperature == 0.0 {
        match model.zero_temperature {
            ZeroTemperature::Reject => {
                let requirement =
                    "it must be above 0; `top_k: 1` gives the same, the most likely token each time";
                return Err(invalid(&fields.path("temperature"), requirement));
            }
            ZeroTemperature::Top1 => (temperature, top_k) = (1.0, 1),
        }
    }
    if let Some((low, high)) = defaults.temperature_range {
        temperature = temperature.clamp(low, high);
    }
    let top_p = number("top_p", 0.0..=1.0, defaults.top_p)?;
    if top_p <= 0.0 {
        return Err(invalid(&fields.path("top_p"), "it must be above 0 and at most 1"));
    }
    let repetition_penalty =
        number("repetition_penalty", 0.0..=REPETITION_PENALTY_MAX, defaults.repetition_penalty)?;
    if repetition_penalty <= 0.0 {
        return Err(invalid(&fields.path("repetition_penalty"), "it must be above 0; 1 is neutral"));
    }
    Ok(SamplingParameters {
        temperature,
        top_k,
        top_p,
        min_p: number("min_p", 0.0..=1.0, defaults.min_p)?,
        repetition_penalty,
        presence_penalty: penalty("presence_penalty", defaults.presence_penalty)?,
        frequency_penalty: penalty("frequency_penalty", defaults.frequency_penalty)?,
        logit_bias: logit_bias(fields, model)?,
        seed: seed(fields)?,
    })
}

fn seed(fields: &Fields<'_>) -> Result<u64, ApiError> {
    let Some(value) = fields.get("seed") else {
        return getrandom::u64().map_err(|error| ApiError::internal(error.to_string()));
    };
    // All 64 bits are the random stream's key, whichever sign they were written with.
    match (value.as_i64(), value.as_u64()) {
        (Some(seed), _) => Ok(seed.cast_unsigned()),
        (None, Some(seed)) => Ok(seed),
        (None, None) => Err(wrong_type(&fields.path("seed"), "a 64-bit integer", value)),
    }
}

fn output_tokens_max(fields: &Fields<'_>, names: &FieldNames) -> Result<Option<u32>, ApiError> {
    let mut limit = None;
    for name in names.output_limits {
        let tokens = fields.integer(name, names.output_tokens_min..=i64::MAX)?;
        limit = limit.or(tokens);
    }
    Ok(limit.map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX)))
}

fn stops(fields: &Fields<'_>, name: &str) -> Result<Vec<String>, ApiError> {
    let path = fields.path(name);
    let Some(value) = fields.get(name) else { return Ok(Vec::new()) };
    let stops = match value {
        Value::String(stop) => vec![stop.clone()],
        Value::Array(stops) => stops
            .iter()
            .map(|stop| match stop {
                Value::String(stop) => Ok(stop.clone()),
                other => Err(wrong_type(&path, "a string or an array of strings", other)),
            })
            .collect::<Result<_, _>>()?,
        other => return Err(wrong_type(&path, "a string or an array of strings", other)),
    };
    if stops.len() > STOPS_MAX {
        return Err(invalid(&path, &format!("{} stop strings exceed the limit of {STOPS_MAX}", stops.len())));
    }
    if stops.iter().any(String::is_empty) {
        return Err(invalid(&path, "a stop string must not be empty"));
    }
    if stops.iter().any(|stop| stop.len() > STOP_BYTES_MAX) {
        return Err(invalid(&path, &format!("a stop string must not exceed {STOP_BYTES_MAX} bytes")));
    }
    Ok(stops)
}

fn cache_salt(fields: &Fields<'_>) -> Result<Option<Arc<str>>, ApiError> {
    let Some(salt) = fields.string("cache_salt")? else { return Ok(None) };
    if salt.is_empty() || salt.len() > SALT_BYTES_MAX {
        let requirement = format!("it must have 1 to {SALT_BYTES_MAX} bytes, but has {}", salt.len());
        return Err(invalid(&fields.path("cache_salt"), &requirement));
    }
    Ok(Some(salt.into()))
}

fn logit_bias(fields: &Fields<'_>, model: &ModelProfile) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let Some(biases) = fields.object("logit_bias")? else { return Ok(Vec::new()) };
    let path = fields.path("logit_bias");
    let (count, count_max) = (biases.object_map().len(), model.limits.bias_entries_max as usize);
    if count > count_max {
        return Err(invalid(&path, &format!("{count} entries exceed the model's limit of {count_max}")));
    }
    let mut entries = Vec::with_capacity(count);
    for key in biases.object_map().keys() {
        let token = key.parse().ok().filter(|&token: &u32| token < model.limits.vocabulary);
        let Some(token) = token else {
            let requirement = format!("'{key}' is not a token id below {}", model.limits.vocabulary);
            return Err(ApiError::of(
                ErrorCode::InvalidValue,
                path,
                format!("Invalid value for 'logit_bias': {requirement}."),
            ));
        };
        if let Some(bias) = biases.number(key, -BIAS_MAX..=BIAS_MAX)? {
            entries.push((TokenId(token), bias as f32));
        }
    }
    Ok(entries)
}
