//! Sampling defaults, end tokens, and the parsers that the frontend uses.

use super::super::contract::{Frontend, Limits, ReasoningParser, SamplingDefaults, ToolParser};
use super::super::{CoreError, proto};
use super::{counted, known, within};
use crate::ids::TokenId;

const EOS_TOKENS_MAX: usize = 64;
/// Temperatures and penalties beyond it are mistakes, whatever the model.
const PARAMETER_MAX: f32 = 100.0;

pub fn bind_sampling(sampling: proto::SamplingDefaults) -> Result<SamplingDefaults, CoreError> {
    let number = |field: &str, value, range| within(&format!("sampling.{field}"), value, range);
    let positive = f32::MIN_POSITIVE..=PARAMETER_MAX;
    let penalty = -PARAMETER_MAX..=PARAMETER_MAX;
    let temperature = number("temperature", sampling.temperature, positive.clone())?;
    let temperature_range = match sampling.temperature_range {
        None => None,
        Some(range) => {
            let minimum =
                number("temperature_range.minimum", range.minimum, f32::MIN_POSITIVE..=temperature)?;
            let maximum = number("temperature_range.maximum", range.maximum, temperature..=PARAMETER_MAX)?;
            Some((minimum, maximum))
        }
    };
    Ok(SamplingDefaults {
        temperature,
        top_k: sampling.top_k,
        top_p: number("top_p", sampling.top_p, f32::MIN_POSITIVE..=1.0)?,
        min_p: number("min_p", sampling.min_p, 0.0..=1.0)?,
        repetition_penalty: number("repetition_penalty", sampling.repetition_penalty, positive)?,
        presence_penalty: number("presence_penalty", sampling.presence_penalty, penalty.clone())?,
        frequency_penalty: number("frequency_penalty", sampling.frequency_penalty, penalty)?,
        temperature_range,
    })
}

pub fn bind(frontend: proto::Frontend, limits: &Limits) -> Result<Frontend, CoreError> {
    counted("frontend.eos_tokens", &frontend.eos_tokens, 1..=EOS_TOKENS_MAX)?;
    for (index, &token) in frontend.eos_tokens.iter().enumerate() {
        within(&format!("frontend.eos_tokens[{index}]"), token, 0..=limits.vocabulary - 1)?;
    }
    let tool_parser = known("frontend.tool_parser", frontend.tool_parser)?;
    let reasoning_parser = known("frontend.reasoning_parser", frontend.reasoning_parser)?;
    if (tool_parser == ToolParser::Harmony) != (reasoning_parser == ReasoningParser::Harmony) {
        let reason = "and frontend.reasoning_parser must both be harmony or neither: its messages hold both";
        return Err(CoreError::contract("frontend.tool_parser", reason));
    }
    Ok(Frontend {
        eos_tokens: frontend.eos_tokens.into_iter().map(TokenId).collect(),
        bos_text: frontend.bos_text,
        eos_text: frontend.eos_text,
        tool_parser,
        reasoning_parser,
    })
}
