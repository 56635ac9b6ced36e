//! Buffers: each source once, of the type and shape that its definition in `core.proto` demands, apart from each other.

use super::super::contract::{
    Buffer, CompletionLayout, DataType, Limits, Region, RegionBacking, StateLayout, ValueSource,
};
use super::super::{CoreError, proto};
use super::{counted, element, known};

/// More than there are sources.
const BUFFERS_MAX: usize = 64;
const COMMAND_FIELDS: u64 = 8;
const REQUEST_FIELDS: u64 = 16;
const REQUEST_PARAMETERS: u64 = 8;

/// What the extents of buffers are made of.
pub struct Extents<'a> {
    pub limits: Limits,
    pub state: &'a StateLayout,
    pub completion: CompletionLayout,
    /// B: the largest decode capacity.
    pub lanes: u32,
}

pub fn bind(
    buffers: &[proto::Buffer],
    regions: &[Region],
    extents: &Extents<'_>,
) -> Result<Vec<Buffer>, CoreError> {
    counted("buffers", buffers, 1..=BUFFERS_MAX)?;
    let mut bound: Vec<Buffer> = Vec::with_capacity(buffers.len());
    for (index, buffer) in buffers.iter().enumerate() {
        let field = format!("buffers[{index}]");
        let buffer = bind_buffer(&field, buffer, regions, extents)?;
        if let Some(other) =
            bound.iter().find(|other| other.source == buffer.source || overlap(other, &buffer))
        {
            let reason = format!("repeats or overlaps the buffer of {}", other.source.as_str_name());
            return Err(CoreError::contract(field, reason));
        }
        bound.push(buffer);
    }
    Ok(bound)
}

/// Bytes of an element.
pub fn element_bytes(data_type: DataType) -> u64 {
    match data_type {
        DataType::Unspecified => 0,
        DataType::U8 => 1,
        DataType::Bf16 => 2,
        DataType::I32 | DataType::U32 | DataType::F32 => 4,
        DataType::I64 => 8,
    }
}

fn bind_buffer(
    field: &str,
    buffer: &proto::Buffer,
    regions: &[Region],
    extents: &Extents<'_>,
) -> Result<Buffer, CoreError> {
    let source: ValueSource = known(&format!("{field}.source"), buffer.source)?;
    let data_type: DataType = known(&format!("{field}.type"), buffer.r#type)?;
    let (expected_type, expected_shape) = definition(source, extents);
    if data_type != expected_type || buffer.shape != expected_shape {
        let reason = format!(
            "is {}{:?}, and {} is {}{expected_shape:?}",
            data_type.as_str_name(),
            buffer.shape,
            source.as_str_name(),
            expected_type.as_str_name(),
        );
        return Err(CoreError::contract(field, reason));
    }
    let region = element(&format!("{field}.region"), regions, buffer.region)?;
    if region.backing != RegionBacking::Zeroed {
        let reason = format!("names region `{}`, which is neither for io nor for scratch", region.name);
        return Err(CoreError::contract(format!("{field}.region"), reason));
    }
    let bytes = byte_length(data_type, &buffer.shape)
        .ok_or_else(|| CoreError::contract(format!("{field}.shape"), "has more bytes than can be counted"))?;
    let end = buffer.offset_bytes.checked_add(bytes).filter(|&end| end <= region.bytes);
    if end.is_none() || !buffer.offset_bytes.is_multiple_of(element_bytes(data_type)) {
        let reason = format!(
            "is {}, so {bytes} bytes from there leave region `{}` of {} bytes or are not aligned",
            buffer.offset_bytes, region.name, region.bytes
        );
        return Err(CoreError::contract(format!("{field}.offset_bytes"), reason));
    }
    let address = region.address + buffer.offset_bytes;
    Ok(Buffer { source, address, bytes, data_type, shape: buffer.shape.clone() })
}

/// The type and shape of a source, as `core.proto` defines them.
fn definition(source: ValueSource, extents: &Extents<'_>) -> (DataType, Vec<u64>) {
    let Extents { limits, state, completion, .. } = extents;
    let lanes = u64::from(extents.lanes);
    let slots = u64::from(limits.requests_max);
    let vocabulary = u64::from(limits.vocabulary);
    let bias = u64::from(limits.bias_entries_max);
    let logprobs = u64::from(limits.logprobs_max);
    let frames = u64::from(completion.frames);
    let record = u64::from(completion.metadata_fields + completion.token_capacity);
    match source {
        ValueSource::Unspecified => (DataType::Unspecified, vec![]),
        ValueSource::Frame => (DataType::I64, vec![1]),
        ValueSource::LaneSlots | ValueSource::LaneEpochs | ValueSource::LaneMasked => {
            (DataType::I64, vec![lanes])
        }
        ValueSource::GrammarMasks => (DataType::U32, vec![lanes, vocabulary.div_ceil(32)]),
        ValueSource::PrefillCommand | ValueSource::AdmissionCommand | ValueSource::StateCommand => {
            (DataType::I64, vec![COMMAND_FIELDS])
        }
        ValueSource::PrefillTokens => (DataType::I64, vec![u64::from(limits.prefill_tokens_max)]),
        ValueSource::AdmissionFields => (DataType::I64, vec![REQUEST_FIELDS]),
        ValueSource::AdmissionParameters => (DataType::F32, vec![REQUEST_PARAMETERS]),
        ValueSource::AdmissionPrompt => (DataType::I64, vec![u64::from(limits.context_tokens_max)]),
        ValueSource::AdmissionBiasTokens => (DataType::I64, vec![bias]),
        ValueSource::AdmissionBiasValues => (DataType::F32, vec![bias]),
        ValueSource::PageTable => (DataType::I32, vec![slots, u64::from(state.pages_per_request_max)]),
        ValueSource::RequestFields => (DataType::I64, vec![slots, REQUEST_FIELDS]),
        ValueSource::RequestParameters => (DataType::F32, vec![slots, REQUEST_PARAMETERS]),
        ValueSource::Histogram => (DataType::I32, vec![slots, vocabulary]),
        ValueSource::BiasTokens => (DataType::I64, vec![slots, bias]),
        ValueSource::BiasValues => (DataType::F32, vec![slots, bias]),
        ValueSource::Completion => (DataType::I64, vec![frames, lanes, record]),
        ValueSource::LogprobTokens => (DataType::I64, vec![frames, lanes, logprobs]),
        ValueSource::LogprobValues => (DataType::F32, vec![frames, lanes, 1 + logprobs]),
        ValueSource::Logits => (DataType::F32, vec![lanes, vocabulary]),
    }
}

fn byte_length(data_type: DataType, shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(element_bytes(data_type), |bytes, &extent| bytes.checked_mul(extent))
}

fn overlap(left: &Buffer, right: &Buffer) -> bool {
    left.address < right.address + right.bytes && right.address < left.address + left.bytes
}
