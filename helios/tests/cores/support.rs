//! A small valid core, made of code that is compiled here and of a contract that tests may change before it is written.
//!
//! Its programs add, append, sum and sleep. Every core has addresses of its own, so that tests run side by side.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use helios::core::FILE_NAME;
use helios::core::proto::{self, DataType, OperationFamily, ValueSource};
use prost::Message;
use sha2::{Digest, Sha256};

/// Requests, vocabulary, context, page tokens, decode lanes and prefill tokens of the core.
const C: u64 = 2;
const V: u64 = 40;
const CONTEXT: u64 = 256;
const PAGE_TOKENS: u64 = 64;
const B: u64 = 2;
const PREFILL: u64 = 64;
const BIAS: u64 = 4;
const LOGPROBS: u64 = 2;
const FRAMES: u64 = 2;
const RECORD: u64 = 16 + 8;

const WEIGHTS_BYTES: usize = 8192;
const ROW_BYTES: u64 = 4096;
const PAGE_BYTES: u64 = 8192;

/// A core before it is written.
#[derive(Clone)]
pub struct TinyCore {
    pub contract: proto::PreparedContract,
    /// Every tensor but `contract`, in file order.
    pub tensors: Vec<(String, Vec<u8>)>,
    /// The safetensors metadata but for the digest, which is that of what is written.
    pub metadata: Vec<(String, String)>,
}

impl TinyCore {
    /// A valid core at addresses that no other core of this process has. Weight i is byte i % 251.
    pub fn new() -> Self {
        static NEXT_BASE: AtomicU64 = AtomicU64::new(0x1100_0000_0000);
        let base = NEXT_BASE.fetch_add(1 << 31, Ordering::Relaxed);
        let weights: Vec<u8> = (0..WEIGHTS_BYTES).map(|index| (index % 251) as u8).collect();
        let metadata = [("format", "flare-core"), ("abi", "1")];
        Self {
            contract: contract(base),
            tensors: vec![
                ("storage.weights".to_owned(), weights),
                ("module.0".to_owned(), image().to_vec()),
                ("frontend.tokenizer".to_owned(), b"{}".to_vec()),
                ("frontend.template".to_owned(), b"{{ messages }}".to_vec()),
            ],
            metadata: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec(),
        }
    }

    /// Writes the core into `folder`.
    pub fn write(&self, folder: &Path) {
        std::fs::write(folder.join(FILE_NAME), self.encode(&self.contract.encode_to_vec())).unwrap();
    }

    /// The bytes of the core's file with `contract` for its contract, which need not be one.
    pub fn encode(&self, contract: &[u8]) -> Vec<u8> {
        let mut hasher = Sha256::new();
        hasher.update(contract);
        for (name, bytes) in &self.tensors {
            if !name.starts_with("storage.") {
                hasher.update(bytes);
            }
        }
        let digest: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut entries = self.metadata.clone();
        entries.push(("digest".to_owned(), digest));

        let mut header = serde_json::Map::new();
        let metadata = entries.into_iter().map(|(key, value)| (key, value.into())).collect();
        header.insert("__metadata__".to_owned(), serde_json::Value::Object(metadata));
        let tensors = self.tensors.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        let mut payload = Vec::new();
        for (name, bytes) in tensors.chain([("contract", contract)]) {
            let start = payload.len();
            payload.extend_from_slice(bytes);
            let info = serde_json::json!({
                "dtype": "U8", "shape": [bytes.len()], "data_offsets": [start, payload.len()],
            });
            header.insert(name.to_owned(), info);
        }
        let mut header = serde_json::to_vec(&header).unwrap();
        header.resize((8 + header.len()).next_multiple_of(4096) - 8, b' ');
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header);
        file.extend(payload);
        file
    }
}

/// The machine code of `kernels.c`, compiled once a process.
fn image() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("kernels.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cores/kernels.c");
        let status = Command::new("cc")
            .args(["-O1", "-Wall", "-Werror", "-fopenmp", "-fPIC", "-shared", "-s", "-o"])
            .arg(&output)
            .arg(source)
            .status()
            .expect("a C compiler, which preparation needs too");
        assert!(status.success());
        std::fs::read(output).unwrap()
    })
}

fn contract(base: u64) -> proto::PreparedContract {
    let (buffers, io_bytes) = buffers();
    let regions = regions(base, io_bytes);
    let programs = programs(&buffers, &regions);
    let kernel = |symbol: &str| proto::Kernel { symbol: symbol.to_owned(), ..Default::default() };
    let segment = |bytes| proto::Segment { name: "all".to_owned(), offset_bytes: 0, bytes };
    proto::PreparedContract {
        abi: 1,
        identity: Some(proto::Identity {
            model_name: "tiny".to_owned(),
            model_fingerprint: "0".repeat(64),
            storage_digest: "1".repeat(64),
            device: Some(proto::identity::Device::Host(proto::HostDevice {
                architecture: std::env::consts::ARCH.to_owned(),
                isa: vec![],
            })),
            created: "2026-01-01T00:00:00Z".to_owned(),
            versions: "cc 12".to_owned(),
        }),
        limits: Some(proto::Limits {
            context_tokens_max: CONTEXT as u32,
            requests_max: C as u32,
            vocabulary: V as u32,
            prefill_tokens_max: PREFILL as u32,
            bias_entries_max: BIAS as u32,
            logprobs_max: LOGPROBS as u32,
        }),
        regions,
        modules: vec![proto::Module { name: "kernels".to_owned(), format: proto::ModuleFormat::Elf as i32 }],
        kernels: ["test_add", "test_append", "test_sum", "test_sleep"].map(kernel).to_vec(),
        buffers,
        state: Some(proto::StateSchema {
            rows_region: 3,
            row_stride_bytes: ROW_BYTES,
            rows_per_slot: 1,
            row_segments: vec![segment(ROW_BYTES)],
            pages_region: 4,
            page_stride_bytes: PAGE_BYTES,
            page_tokens: PAGE_TOKENS as u32,
            page_segments: vec![segment(PAGE_BYTES)],
        }),
        completion: Some(proto::CompletionLayout {
            metadata_fields: 16,
            token_capacity: 0,
            frames: FRAMES as u32,
        }),
        programs,
        sampling: Some(proto::SamplingDefaults {
            temperature: 0.6,
            top_k: 20,
            top_p: 0.95,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            temperature_range: Some(proto::Range { minimum: 0.1, maximum: 2.0 }),
        }),
        frontend: Some(proto::Frontend {
            eos_tokens: vec![V as u32 - 1],
            bos_text: "<s>".to_owned(),
            eos_text: "</s>".to_owned(),
            tool_parser: proto::ToolParser::None as i32,
            reasoning_parser: proto::ReasoningParser::None as i32,
        }),
    }
}

fn regions(base: u64, io_bytes: u64) -> Vec<proto::Region> {
    use proto::{RegionBacking as Backing, RegionRole as Role};
    let parts = [
        ("weights", WEIGHTS_BYTES as u64, Role::Weights, Backing::Storage),
        ("io", io_bytes, Role::Io, Backing::Zeroed),
        ("scratch", 4096, Role::Scratch, Backing::Zeroed),
        ("rows", 1 << 20, Role::Rows, Backing::Elastic),
        ("pages", 16 << 20, Role::Pages, Backing::Elastic),
    ];
    let region = |(index, (name, bytes, role, backing)): (usize, (&str, u64, Role, Backing))| proto::Region {
        name: name.to_owned(),
        address: base + ((index as u64) << 28),
        bytes,
        role: role as i32,
        backing: backing as i32,
    };
    parts.into_iter().enumerate().map(region).collect()
}

/// Every buffer, one behind the other in the io region, and the bytes that the region takes.
fn buffers() -> (Vec<proto::Buffer>, u64) {
    use DataType::{F32, I32, I64, U32};
    use ValueSource as Source;
    let mut free_from = 0u64;
    let definitions: [(ValueSource, DataType, &[u64]); 24] = [
        (Source::Frame, I64, &[1]),
        (Source::LaneSlots, I64, &[B]),
        (Source::LaneEpochs, I64, &[B]),
        (Source::LaneMasked, I64, &[B]),
        (Source::GrammarMasks, U32, &[B, V.div_ceil(32)]),
        (Source::PrefillCommand, I64, &[8]),
        (Source::PrefillTokens, I64, &[PREFILL]),
        (Source::AdmissionCommand, I64, &[8]),
        (Source::AdmissionFields, I64, &[16]),
        (Source::AdmissionParameters, F32, &[8]),
        (Source::AdmissionPrompt, I64, &[CONTEXT]),
        (Source::AdmissionBiasTokens, I64, &[BIAS]),
        (Source::AdmissionBiasValues, F32, &[BIAS]),
        (Source::StateCommand, I64, &[8]),
        (Source::PageTable, I32, &[C, CONTEXT / PAGE_TOKENS]),
        (Source::RequestFields, I64, &[C, 16]),
        (Source::RequestParameters, F32, &[C, 8]),
        (Source::Histogram, I32, &[C, V]),
        (Source::BiasTokens, I64, &[C, BIAS]),
        (Source::BiasValues, F32, &[C, BIAS]),
        (Source::Completion, I64, &[FRAMES, B, RECORD]),
        (Source::LogprobTokens, I64, &[FRAMES, B, LOGPROBS]),
        (Source::LogprobValues, F32, &[FRAMES, B, 1 + LOGPROBS]),
        (Source::Logits, F32, &[B, V]),
    ];
    let buffers = definitions.map(|(source, data_type, shape)| {
        let offset_bytes = free_from;
        let bytes = shape.iter().product::<u64>() * if data_type == I64 { 8 } else { 4 };
        free_from = (free_from + bytes).next_multiple_of(64);
        let (source, r#type) = (source as i32, data_type as i32);
        proto::Buffer { source, region: 1, offset_bytes, r#type, shape: shape.to_vec() }
    });
    (buffers.to_vec(), free_from.next_multiple_of(4096))
}

fn programs(buffers: &[proto::Buffer], regions: &[proto::Region]) -> Vec<proto::Program> {
    use OperationFamily as Family;
    let address = |source: ValueSource| {
        let buffer = buffers.iter().find(|buffer| buffer.source == source as i32).unwrap();
        regions[1].address + buffer.offset_bytes
    };
    let completion = address(ValueSource::Completion);
    let slots = address(ValueSource::LaneSlots);
    let prompt = address(ValueSource::AdmissionPrompt);
    let program =
        |name: &str, family: Family, (requests, tokens), kernel, arguments: &[u64]| proto::Program {
            name: name.to_owned(),
            family: family as i32,
            requests,
            tokens,
            nodes: vec![proto::Node { kernel, arguments: arguments.to_vec(), action: None }],
            edges: vec![],
            bindings: (0..buffers.len() as u32).collect(),
            cost_ms: 0.5,
        };
    let (add, append, sum, sleep) = (0, 1, 2, 3);
    let tokens = address(ValueSource::PrefillTokens);
    vec![
        // Doubles the chunk's first 32 tokens into the completion frame.
        program("prefill.64", Family::Prefill, (1, 64), add, &[tokens, tokens, completion, 32]),
        // Appends the first lane's slot to a log in the completion frame.
        program("decode.1", Family::Decode, (1, 0), append, &[slots, completion]),
        // Sums the prompt with the whole team.
        program("decode.2", Family::Decode, (2, 0), sum, &[prompt, completion, CONTEXT]),
        // Sleeps for as many milliseconds as the first lane's slot says.
        program("resume.1", Family::Resume, (1, 0), sleep, &[slots]),
        // Twice the first 32 weights, as integers.
        program(
            "initialize",
            Family::Initialize,
            (1, 0),
            add,
            &[regions[0].address, regions[0].address, completion, 32],
        ),
        // Row 1 and page 1 become row 0 + row 0 and row 1 + row 1.
        program(
            "restore",
            Family::Restore,
            (1, 0),
            add,
            &[regions[3].address, regions[3].address, regions[3].address + ROW_BYTES, 512],
        ),
        program(
            "snapshot",
            Family::Snapshot,
            (1, 0),
            add,
            &[
                regions[3].address + ROW_BYTES,
                regions[3].address + ROW_BYTES,
                regions[4].address + PAGE_BYTES,
                512,
            ],
        ),
        program("reset", Family::Reset, (1, 0), sleep, &[slots]),
    ]
}
