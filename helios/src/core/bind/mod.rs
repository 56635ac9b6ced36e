//! Binding: from the contract's message to [`BoundContract`], by checking every claim it makes.
//!
//! Each part of the message has a file here. A check that fails names the field by its path in the message. Checks run
//! from what others refer to (limits, regions) to what refers to them (programs), and no count or size is used before it
//! was found sane.

mod buffers;
mod frontend;
mod identity;
mod nodes;
mod programs;
mod regions;
mod state;

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::contract::{BoundContract, DeviceIdentity, Limits};
use super::file::{ABI, CoreFile};
use super::{CoreError, proto};

pub use identity::is_digest;

const CONTEXT_TOKENS_MAX: u32 = 1 << 24;
const REQUESTS_MAX: u32 = 1024;
const VOCABULARY_MAX: u32 = 1 << 24;
const PREFILL_TOKENS_MAX: u32 = 1 << 20;
const BIAS_ENTRIES_MAX: u32 = 1 << 16;
const LOGPROBS_MAX: u32 = 1024;

/// Checks a contract against itself, against the tensors of its file and against the number of its module images.
pub fn bind(
    contract: proto::PreparedContract,
    file: &CoreFile,
    images: usize,
) -> Result<BoundContract, CoreError> {
    if contract.abi != ABI {
        return Err(CoreError::UnsupportedAbi { abi: contract.abi.to_string(), supported: ABI });
    }
    let identity = identity::bind(present("identity", contract.identity)?, contract.abi)?;
    let limits = bind_limits(present("limits", contract.limits)?)?;
    let regions = regions::bind(&contract.regions, &identity.device, file)?;
    let (modules, kernels) =
        programs::bind_code(&contract.modules, &contract.kernels, &identity.device, images)?;
    let state = state::bind(&present("state", contract.state)?, &regions, &limits)?;
    let completion = state::bind_completion(present("completion", contract.completion)?)?;
    let lanes = programs::decode_lanes(&contract.programs);
    let extents = buffers::Extents { limits, state: &state, completion, lanes };
    let buffers = buffers::bind(&contract.buffers, &regions, &extents)?;
    let context = programs::Context {
        limits,
        regions: &regions,
        window: regions::window(&identity.device),
        kernels: &kernels,
        is_cuda: matches!(identity.device, DeviceIdentity::Cuda { .. }),
        buffers: &buffers,
    };
    let programs = programs::bind(contract.programs, &context)?;
    let sampling = frontend::bind_sampling(present("sampling", contract.sampling)?)?;
    let frontend = frontend::bind(present("frontend", contract.frontend)?, &limits)?;
    Ok(BoundContract {
        identity,
        limits,
        regions,
        modules,
        kernels,
        buffers,
        state,
        completion,
        programs,
        sampling,
        frontend,
    })
}

fn bind_limits(limits: proto::Limits) -> Result<Limits, CoreError> {
    let limit = |field: &str, value, range| within(&format!("limits.{field}"), value, range);
    let vocabulary = limit("vocabulary", limits.vocabulary, 1..=VOCABULARY_MAX)?;
    Ok(Limits {
        context_tokens_max: limit("context_tokens_max", limits.context_tokens_max, 2..=CONTEXT_TOKENS_MAX)?,
        requests_max: limit("requests_max", limits.requests_max, 1..=REQUESTS_MAX)?,
        vocabulary,
        prefill_tokens_max: limit("prefill_tokens_max", limits.prefill_tokens_max, 1..=PREFILL_TOKENS_MAX)?,
        bias_entries_max: limit("bias_entries_max", limits.bias_entries_max, 0..=BIAS_ENTRIES_MAX)?,
        logprobs_max: limit("logprobs_max", limits.logprobs_max, 0..=LOGPROBS_MAX.min(vocabulary))?,
    })
}

/// A message field that must be there.
fn present<T>(field: &str, value: Option<T>) -> Result<T, CoreError> {
    value.ok_or_else(|| CoreError::contract(field, "is missing"))
}

/// A number that must lie in `range`.
fn within<T: PartialOrd + Display>(field: &str, value: T, range: RangeInclusive<T>) -> Result<T, CoreError> {
    if range.contains(&value) {
        return Ok(value);
    }
    let reason = format!("is {value} and must lie in {}..={}", range.start(), range.end());
    Err(CoreError::contract(field, reason))
}

/// An enum value that this release knows and that is not the unspecified one, which is every enum's zero.
fn known<E: TryFrom<i32>>(field: &str, value: i32) -> Result<E, CoreError> {
    match E::try_from(value) {
        Ok(known) if value != 0 => Ok(known),
        _ => Err(CoreError::contract(field, format!("is {value}, which this release does not know"))),
    }
}

/// The element that `index` names in a list of the contract.
fn element<'a, T>(field: &str, list: &'a [T], index: u32) -> Result<&'a T, CoreError> {
    usize::try_from(index)
        .ok()
        .and_then(|index| list.get(index))
        .ok_or_else(|| CoreError::contract(field, format!("is {index}, and there are {}", list.len())))
}

/// A name: 1 to 64 letters, digits, `.`, `_` and `-`.
fn name(field: &str, value: &str) -> Result<String, CoreError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if value.is_empty() || value.len() > 64 || !value.bytes().all(allowed) {
        let reason = "is no name of 1 to 64 letters, digits, dots, dashes and underscores";
        return Err(CoreError::contract(field, reason));
    }
    Ok(value.to_owned())
}

/// A list's length, which must lie in `range`.
fn counted<T>(field: &str, list: &[T], range: RangeInclusive<usize>) -> Result<(), CoreError> {
    within(&format!("{field}'s length"), list.len(), range).map(|_| ())
}
