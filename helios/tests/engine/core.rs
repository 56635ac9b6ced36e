//! The tests' core with the host device's own state and sampling operators around a forward that is a hash.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use helios::core::proto::{self, OperationFamily, ValueSource};

use crate::support::TinyCore;

pub const SLOTS: u32 = 2;
pub const VOCABULARY: u32 = 40;
pub const CONTEXT_TOKENS: u32 = 256;
pub const PAGE_TOKENS: u32 = 64;
pub const END_TOKEN: u32 = VOCABULARY - 1;

const LANES: u64 = 2;
const CHUNK_TOKENS: u64 = 64;
const BIAS_ENTRIES_MAX: u64 = 4;
const LOGPROBS_MAX: u64 = 2;
const HIDDEN: u64 = 32;
const TABLE_WIDTH: u64 = (CONTEXT_TOKENS / PAGE_TOKENS) as u64;
const SCRATCH_BYTES: u64 = 1 << 20;

const PAGE_BYTES: u64 = 8192;
/// A row: the hidden vector, the consumed count, and the partly filled page.
const CONSUMED_OFFSET: u64 = 1024;
const PARTIAL_OFFSET: u64 = 4096;
const ROW_BYTES: u64 = PARTIAL_OFFSET + PAGE_BYTES;

const KERNELS: [&str; 11] = [
    "flare_initialize",
    "flare_begin_prefill",
    "flare_commit_prefill",
    "flare_begin_decode",
    "flare_commit_decode",
    "flare_sample",
    "test_forward",
    "flare_begin_resume",
    "test_resume",
    "flare_restore",
    "flare_snapshot",
];

/// A core of two slots whose tokens are a function of the history alone.
pub fn core() -> TinyCore {
    let mut core = TinyCore::new();
    let weights = &mut core.tensors[0].1;
    weights[..8].copy_from_slice(&i64::from(END_TOKEN).to_le_bytes());
    core.tensors[1].1 = image();
    let contract = &mut core.contract;
    contract.regions[2].bytes = SCRATCH_BYTES;
    let state = contract.state.as_mut().unwrap();
    assert_eq!(state.page_stride_bytes, PAGE_BYTES);
    state.row_stride_bytes = ROW_BYTES;
    state.row_segments[0].bytes = ROW_BYTES;
    contract.kernels = KERNELS
        .iter()
        .map(|symbol| proto::Kernel { symbol: (*symbol).to_owned(), ..Default::default() })
        .collect();
    let addresses = Addresses::new(contract);
    for program in &mut contract.programs {
        let family = OperationFamily::try_from(program.family).unwrap();
        program.nodes = match family {
            OperationFamily::Initialize => vec![addresses.initialize()],
            OperationFamily::Prefill => addresses.prefill(),
            OperationFamily::Decode => addresses.decode(u64::from(program.requests)),
            OperationFamily::Resume => addresses.resume(),
            OperationFamily::Restore => vec![addresses.transfer("flare_restore")],
            OperationFamily::Snapshot => vec![addresses.transfer("flare_snapshot")],
            // The worker launches no other.
            _ => vec![addresses.initialize()],
        };
    }
    core
}

/// Where programs find things.
struct Addresses {
    buffers: Vec<(i32, u64)>,
    weights: u64,
    scratch: u64,
    rows: u64,
    pages: u64,
    row_stride: u64,
    page_stride: u64,
}

impl Addresses {
    fn new(contract: &proto::PreparedContract) -> Self {
        let region = |index: u32| contract.regions[index as usize].address;
        let state = contract.state.as_ref().unwrap();
        let address = |buffer: &proto::Buffer| (buffer.source, region(buffer.region) + buffer.offset_bytes);
        Self {
            buffers: contract.buffers.iter().map(address).collect(),
            weights: region(0),
            scratch: region(2),
            rows: region(state.rows_region),
            pages: region(state.pages_region),
            row_stride: state.row_stride_bytes,
            page_stride: state.page_stride_bytes,
        }
    }

    fn of(&self, source: ValueSource) -> u64 {
        self.buffers.iter().find(|buffer| buffer.0 == source as i32).unwrap().1
    }

    /// One KiB each of tokens, positions, token slots and lanes, then hidden vectors, then the sampler's scratch.
    fn part(&self, index: u64) -> u64 {
        self.scratch + index * 1024
    }

    fn initialize(&self) -> proto::Node {
        use ValueSource as Source;
        let sources = [
            Source::AdmissionCommand,
            Source::AdmissionFields,
            Source::AdmissionParameters,
            Source::AdmissionPrompt,
            Source::AdmissionBiasTokens,
            Source::AdmissionBiasValues,
            Source::RequestFields,
            Source::RequestParameters,
            Source::Histogram,
            Source::BiasTokens,
            Source::BiasValues,
            Source::Frame,
            Source::Completion,
        ];
        let mut arguments: Vec<u64> = sources.map(|source| self.of(source)).to_vec();
        arguments.extend([
            u64::from(SLOTS),
            u64::from(VOCABULARY),
            BIAS_ENTRIES_MAX,
            u64::from(CONTEXT_TOKENS),
            LANES,
            8,
        ]);
        node("flare_initialize", arguments)
    }

    fn prefill(&self) -> Vec<proto::Node> {
        let command = self.of(ValueSource::PrefillCommand);
        let fields = self.of(ValueSource::RequestFields);
        let [tokens, positions, token_slots, lanes, hidden] = [0, 1, 2, 3, 4].map(|index| self.part(index));
        let begin = vec![
            command,
            self.of(ValueSource::PrefillTokens),
            fields,
            tokens,
            positions,
            token_slots,
            lanes,
            CHUNK_TOKENS,
            u64::from(SLOTS),
            u64::from(VOCABULARY),
            u64::from(CONTEXT_TOKENS),
        ];
        let last_hidden = hidden + CHUNK_TOKENS * HIDDEN * 2;
        let mut commit = vec![hidden, command, lanes, fields, self.rows, last_hidden, CHUNK_TOKENS];
        commit.extend([HIDDEN, self.row_stride, 1, 0]);
        vec![
            node("flare_begin_prefill", begin),
            self.forward(CHUNK_TOKENS, 1, 0),
            node("flare_commit_prefill", commit),
            self.sample(1, OperationFamily::Prefill),
        ]
    }

    fn decode(&self, requests: u64) -> Vec<proto::Node> {
        let fields = self.of(ValueSource::RequestFields);
        let [tokens, positions, token_slots, lanes, hidden] = [0, 1, 2, 3, 4].map(|index| self.part(index));
        let begin = vec![
            self.of(ValueSource::LaneSlots),
            self.of(ValueSource::LaneEpochs),
            self.of(ValueSource::LaneMasked),
            fields,
            tokens,
            positions,
            token_slots,
            lanes,
            requests,
            u64::from(SLOTS),
            u64::from(VOCABULARY),
            u64::from(CONTEXT_TOKENS),
        ];
        let commit = vec![hidden, lanes, fields, self.rows, requests, HIDDEN, self.row_stride, 1, 0];
        vec![
            node("flare_begin_decode", begin),
            self.forward(requests, requests, 1),
            node("flare_commit_decode", commit),
            self.sample(requests, OperationFamily::Decode),
        ]
    }

    fn resume(&self) -> Vec<proto::Node> {
        let begin = vec![
            self.of(ValueSource::LaneSlots),
            self.of(ValueSource::LaneEpochs),
            self.of(ValueSource::LaneMasked),
            self.of(ValueSource::RequestFields),
            self.rows,
            self.part(4),
            self.part(3),
            1,
            u64::from(SLOTS),
            HIDDEN,
            self.row_stride,
            1,
            0,
        ];
        let logits = vec![self.part(4), self.part(3), self.of(ValueSource::Logits), 1, u64::from(VOCABULARY)];
        vec![
            node("flare_begin_resume", begin),
            node("test_resume", logits),
            self.sample(1, OperationFamily::Resume),
        ]
    }

    fn transfer(&self, symbol: &str) -> proto::Node {
        let arguments = vec![
            self.of(ValueSource::StateCommand),
            self.of(ValueSource::RequestFields),
            self.rows,
            self.pages,
            self.of(ValueSource::Frame),
            self.of(ValueSource::Completion),
            u64::from(SLOTS),
            HIDDEN,
            self.row_stride,
            1,
            CONSUMED_OFFSET,
            0,
            PARTIAL_OFFSET,
            self.page_stride,
            u64::from(PAGE_TOKENS),
            LANES,
            8,
        ];
        node(symbol, arguments)
    }

    fn forward(&self, tokens: u64, requests: u64, is_decode: u64) -> proto::Node {
        let mut arguments = [0, 1, 2, 3, 4].map(|index| self.part(index)).to_vec();
        arguments.extend([
            self.of(ValueSource::PageTable),
            self.pages,
            self.of(ValueSource::Logits),
            tokens,
            requests,
            u64::from(VOCABULARY),
            TABLE_WIDTH,
            self.page_stride,
            is_decode,
        ]);
        node("test_forward", arguments)
    }

    fn sample(&self, requests: u64, family: OperationFamily) -> proto::Node {
        use ValueSource as Source;
        let mut arguments = vec![self.of(Source::Logits), self.part(3)];
        let state = [
            Source::RequestFields,
            Source::RequestParameters,
            Source::Histogram,
            Source::BiasTokens,
            Source::BiasValues,
            Source::GrammarMasks,
        ];
        arguments.extend(state.map(|source| self.of(source)));
        arguments.push(self.weights);
        let outputs = [Source::Frame, Source::Completion, Source::LogprobTokens, Source::LogprobValues];
        arguments.extend(outputs.map(|source| self.of(source)));
        arguments.push(self.part(64));
        arguments.extend([requests, u64::from(VOCABULARY), u64::from(SLOTS), BIAS_ENTRIES_MAX, 1]);
        arguments.extend([LANES, 8, LOGPROBS_MAX, family as u64]);
        node("flare_sample", arguments)
    }
}

fn node(symbol: &str, arguments: Vec<u64>) -> proto::Node {
    let kernel = KERNELS.iter().position(|kernel| *kernel == symbol).unwrap();
    proto::Node { kernel: kernel as u32, arguments, action: None }
}

/// The operators' machine code with the forward, compiled once a process.
fn image() -> Vec<u8> {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(compile).clone()
}

fn compile() -> Vec<u8> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine");
    let operators = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ignition/kernels/host");
    let folder = tempfile::tempdir().unwrap();
    let forward = folder.path().join("forward.o");
    run(
        Command::new("cc").args(["-O1", "-Wall", "-Werror", "-fPIC", "-c"]).arg(tests.join("forward.c")),
        &forward,
    );
    let sources: Vec<PathBuf> =
        ["state.cpp", "token_state.cpp", "sample.cpp"].iter().map(|name| operators.join(name)).collect();
    let output = folder.path().join("kernels.so");
    let flags =
        ["-std=c++20", "-O1", "-march=x86-64-v3", "-ffp-contract=off", "-fopenmp", "-fPIC", "-shared", "-s"];
    run(Command::new("g++").args(flags).args(sources).arg(forward), &output);
    std::fs::read(output).unwrap()
}

fn run(command: &mut Command, output: &Path) {
    let status = command.arg("-o").arg(output).status().expect("a compiler, which preparation needs too");
    assert!(status.success(), "{command:?}");
}
