//! A bound contract without a model: the buffers and programs that the runtime drives.

use crate::core::contract::{
    BoundContract, Buffer, CompletionLayout, DataType, DeviceIdentity, Frontend, Identity, Limits,
    OperationFamily, Program, ReasoningParser, SamplingDefaults, StateLayout, ToolParser, ValueSource,
};

pub(crate) const VOCABULARY: u32 = 500;
pub(crate) const PAGE_TOKENS: u32 = 4;
pub(crate) const CONTEXT_TOKENS: u32 = 96;
pub(crate) const SLOTS: u32 = 3;
/// Lanes of the largest decode program, one more than slots.
const LANES: u32 = 4;
const LOGPROBS_MAX: u32 = 5;
const BIAS_ENTRIES_MAX: u32 = 6;
const FRAMES: u32 = 2;
const METADATA_FIELDS: u32 = 16;
const TOKEN_CAPACITY: u32 = 8;

/// A core of [`SLOTS`] slots with prefill capacities 8 and 16 and decode capacities 1, 2 and 4.
pub(crate) fn contract() -> BoundContract {
    let program = |name: &str, family, requests, tokens| Program {
        name: name.into(),
        family,
        requests,
        tokens,
        nodes: Vec::new(),
        edges: Vec::new(),
        bindings: Vec::new(),
        cost_ms: f64::from(requests + tokens),
    };
    BoundContract {
        identity: Identity {
            abi: 1,
            model_name: "simulated".into(),
            model_fingerprint: String::new(),
            storage_digest: String::new(),
            device: DeviceIdentity::Host { architecture: "x86_64".into(), isa: Vec::new() },
            created: String::new(),
            versions: String::new(),
        },
        limits: Limits {
            context_tokens_max: CONTEXT_TOKENS,
            requests_max: SLOTS,
            vocabulary: VOCABULARY,
            prefill_tokens_max: 16,
            bias_entries_max: BIAS_ENTRIES_MAX,
            logprobs_max: LOGPROBS_MAX,
        },
        regions: Vec::new(),
        modules: Vec::new(),
        kernels: Vec::new(),
        buffers: buffers(),
        state: StateLayout {
            rows_region: 0,
            row_stride_bytes: 64,
            rows_per_slot: 1,
            pages_region: 0,
            page_stride_bytes: 4096,
            page_tokens: PAGE_TOKENS,
            pages_per_request_max: CONTEXT_TOKENS.div_ceil(PAGE_TOKENS),
        },
        completion: CompletionLayout {
            metadata_fields: METADATA_FIELDS,
            token_capacity: TOKEN_CAPACITY,
            frames: FRAMES,
        },
        programs: vec![
            program("prefill.16", OperationFamily::Prefill, 1, 16),
            program("prefill.8", OperationFamily::Prefill, 1, 8),
            program("decode.1", OperationFamily::Decode, 1, 0),
            program("decode.2", OperationFamily::Decode, 2, 0),
            program("decode.4", OperationFamily::Decode, LANES, 0),
            program("resume.1", OperationFamily::Resume, 1, 0),
            program("initialize", OperationFamily::Initialize, 1, 0),
            program("restore", OperationFamily::Restore, 1, 0),
            program("snapshot", OperationFamily::Snapshot, 1, 0),
        ],
        sampling: sampling(),
        frontend: Frontend {
            eos_tokens: Vec::new(),
            bos_text: String::new(),
            eos_text: String::new(),
            tool_parser: ToolParser::None,
            reasoning_parser: ReasoningParser::None,
        },
    }
}

fn sampling() -> SamplingDefaults {
    SamplingDefaults {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        repetition_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        temperature_range: None,
    }
}

fn buffers() -> Vec<Buffer> {
    let (context, lanes, bias) = (u64::from(CONTEXT_TOKENS), u64::from(LANES), u64::from(BIAS_ENTRIES_MAX));
    let frames = u64::from(FRAMES);
    let record = u64::from(METADATA_FIELDS + TOKEN_CAPACITY);
    let logprobs = u64::from(LOGPROBS_MAX);
    let table = vec![u64::from(SLOTS), u64::from(CONTEXT_TOKENS.div_ceil(PAGE_TOKENS))];
    let shapes = [
        (ValueSource::Frame, DataType::I64, vec![1]),
        (ValueSource::LaneSlots, DataType::I64, vec![lanes]),
        (ValueSource::LaneEpochs, DataType::I64, vec![lanes]),
        (ValueSource::LaneMasked, DataType::I64, vec![lanes]),
        (ValueSource::GrammarMasks, DataType::I32, vec![lanes, u64::from(VOCABULARY.div_ceil(32))]),
        (ValueSource::PrefillCommand, DataType::I64, vec![8]),
        (ValueSource::PrefillTokens, DataType::I64, vec![16]),
        (ValueSource::AdmissionCommand, DataType::I64, vec![8]),
        (ValueSource::AdmissionFields, DataType::I64, vec![16]),
        (ValueSource::AdmissionParameters, DataType::F32, vec![8]),
        (ValueSource::AdmissionPrompt, DataType::I64, vec![context]),
        (ValueSource::AdmissionBiasTokens, DataType::I64, vec![bias]),
        (ValueSource::AdmissionBiasValues, DataType::F32, vec![bias]),
        (ValueSource::StateCommand, DataType::I64, vec![8]),
        (ValueSource::PageTable, DataType::I32, table),
        (ValueSource::Completion, DataType::I64, vec![frames, lanes, record]),
        (ValueSource::LogprobTokens, DataType::I64, vec![frames, lanes, logprobs]),
        (ValueSource::LogprobValues, DataType::F32, vec![frames, lanes, 1 + logprobs]),
    ];
    let buffer = |(source, data_type, shape): (ValueSource, DataType, Vec<u64>)| {
        let element_bytes = if data_type == DataType::I64 { 8 } else { 4 };
        let bytes = shape.iter().product::<u64>() * element_bytes;
        Buffer { source, address: 0, bytes, data_type, shape }
    };
    shapes.into_iter().map(buffer).collect()
}
