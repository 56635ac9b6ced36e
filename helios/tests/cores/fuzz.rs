//! Mutated cores: whatever happens to a core's bytes, opening it is a typed error or, where the change does no harm, a success.
//! What opens can also be put in place or is refused as typed; it is not run, since its code or arguments may have changed.

use helios::core::{Core, FILE_NAME, proto};
use helios::memory::{LoadError, MemoryOptions, load};
use proptest::prelude::*;
use prost::Message;

use crate::support::TinyCore;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// One change to a run of bytes. Positions are fractions of the length, so that they fit whatever the length is.
#[derive(Clone, Debug)]
enum Change {
    Flip { at: f64, bits: u8 },
    Set { at: f64, bytes: Vec<u8> },
    Insert { at: f64, bytes: Vec<u8> },
    Remove { at: f64, count: usize },
    Truncate { at: f64 },
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let index = |at: f64, len: usize| ((at * len as f64) as usize).min(len.saturating_sub(1));
        let len = bytes.len();
        match self {
            Self::Flip { at, bits } if len > 0 => bytes[index(*at, len)] ^= bits,
            Self::Set { at, bytes: new } => {
                let start = index(*at, len);
                bytes.iter_mut().skip(start).zip(new).for_each(|(old, new)| *old = *new);
            }
            Self::Insert { at, bytes: new } => {
                let start = index(*at, len);
                bytes.splice(start..start, new.iter().copied());
            }
            Self::Remove { at, count } => {
                let start = index(*at, len);
                bytes.drain(start..(start + count).min(len));
            }
            Self::Truncate { at } => bytes.truncate(index(*at, len)),
            Self::Flip { .. } => {}
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let at = || 0.0..1.0f64;
    let bytes = || prop::collection::vec(any::<u8>(), 1..12);
    prop_oneof![
        4 => (at(), 1..=255u8).prop_map(|(at, bits)| Change::Flip { at, bits }),
        2 => (at(), bytes()).prop_map(|(at, bytes)| Change::Set { at, bytes }),
        1 => (at(), bytes()).prop_map(|(at, bytes)| Change::Insert { at, bytes }),
        1 => (at(), 1..64usize).prop_map(|(at, count)| Change::Remove { at, count }),
        1 => at().prop_map(|at| Change::Truncate { at }),
    ]
}

/// Numbers that break arithmetic, beside small ones and any.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..70u64,
        prop::sample::select(vec![
            u64::MAX,
            u64::MAX - 4095,
            1 << 63,
            1 << 32,
            u64::from(u32::MAX),
            1 << 31,
            4096,
            2 << 20,
            0x1000_0000_0000,
            0x1100_0000_0000,
            0x1fff_ffff_ffff,
            0x2000_0000_0000,
        ]),
        any::<u64>(),
    ]
}

/// Sets the `which`-th of the contract's numbers.
fn edit(contract: &mut proto::PreparedContract, which: usize, element: usize, value: u64) {
    let word = value as u32;
    let float = f32::from_bits(word);
    let pick = |len: usize| element % len.max(1);
    let limits = contract.limits.as_mut().unwrap();
    let state = contract.state.as_mut().unwrap();
    let completion = contract.completion.as_mut().unwrap();
    let sampling = contract.sampling.as_mut().unwrap();
    let region = pick(contract.regions.len());
    let buffer = pick(contract.buffers.len());
    let program = pick(contract.programs.len());
    let region = &mut contract.regions[region];
    let buffer = &mut contract.buffers[buffer];
    let program = &mut contract.programs[program];
    match which {
        0 => contract.abi = word,
        1 => limits.context_tokens_max = word,
        2 => limits.requests_max = word,
        3 => limits.vocabulary = word,
        4 => limits.prefill_tokens_max = word,
        5 => limits.bias_entries_max = word,
        6 => limits.logprobs_max = word,
        7 => region.address = value,
        8 => region.bytes = value,
        9 => region.role = word as i32,
        10 => region.backing = word as i32,
        11 => contract.modules[0].format = word as i32,
        12 => contract.kernels[element % 4].module = word,
        13 => buffer.source = word as i32,
        14 => buffer.region = word,
        15 => buffer.offset_bytes = value,
        16 => buffer.r#type = word as i32,
        17 => buffer.shape[0] = value,
        18 => buffer.shape.push(value),
        19 => state.rows_region = word,
        20 => state.row_stride_bytes = value,
        21 => state.rows_per_slot = word,
        22 => state.row_segments[0].offset_bytes = value,
        23 => state.row_segments[0].bytes = value,
        24 => state.pages_region = word,
        25 => state.page_stride_bytes = value,
        26 => state.page_tokens = word,
        27 => completion.metadata_fields = word,
        28 => completion.token_capacity = word,
        29 => completion.frames = word,
        30 => program.family = word as i32,
        31 => program.requests = word,
        32 => program.tokens = word,
        33 => program.nodes[0].kernel = word,
        34 => program.nodes[0].arguments[0] = value,
        35 => program.bindings[0] = word,
        36 => program.cost_ms = f64::from_bits(value),
        37 => sampling.temperature = float,
        38 => sampling.top_p = float,
        39 => sampling.repetition_penalty = float,
        40 => contract.frontend.as_mut().unwrap().eos_tokens[0] = word,
        41 => program.edges.push(proto::Edge { from: word, to: (value >> 32) as u32, ..Default::default() }),
        _ => contract.regions.truncate(element % 5),
    }
}

fn open(bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(FILE_NAME), bytes).unwrap();
    // Either outcome is right; a panic or a crash is not.
    if let Err(error) = Core::open(folder.path()) {
        assert!(!error.to_string().is_empty());
    }
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn changed_files_are_opened_or_refused(changes in prop::collection::vec(change(), 1..4)) {
        let core = TinyCore::new();
        let mut bytes = core.encode(&core.contract.encode_to_vec());
        changes.iter().for_each(|change| change.apply(&mut bytes));
        open(&bytes);
    }

    #[test]
    fn changed_headers_are_opened_or_refused(changes in prop::collection::vec(change(), 1..4)) {
        let core = TinyCore::new();
        let bytes = core.encode(&core.contract.encode_to_vec());
        let (length, rest) = bytes.split_at(8);
        let (header, payload) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
        let mut header = header.trim_ascii_end().to_vec();
        changes.iter().for_each(|change| change.apply(&mut header));
        header.resize((8 + header.len()).next_multiple_of(4096) - 8, b' ');
        open(&[&(header.len() as u64).to_le_bytes(), header.as_slice(), payload].concat());
    }

    /// The digest is that of the changed contract, so that the contract's own checks are what stands.
    #[test]
    fn changed_contract_bytes_are_bound_or_refused(changes in prop::collection::vec(change(), 1..4)) {
        let core = TinyCore::new();
        let mut contract = core.contract.encode_to_vec();
        changes.iter().for_each(|change| change.apply(&mut contract));
        open(&core.encode(&contract));
    }

    #[test]
    fn changed_cuda_contract_bytes_are_bound_or_refused(changes in prop::collection::vec(change(), 1..4)) {
        let core = crate::cuda::core();
        let mut contract = core.contract.encode_to_vec();
        changes.iter().for_each(|change| change.apply(&mut contract));
        open(&core.encode(&contract));
    }

    #[test]
    fn changed_numbers_are_loaded_or_refused(
        edits in prop::collection::vec((0..43usize, any::<usize>(), number()), 1..3),
    ) {
        let mut core = TinyCore::new();
        for (which, element, value) in edits {
            if !core.contract.regions.is_empty() {
                edit(&mut core.contract, which, element, value);
            }
        }
        let folder = tempfile::tempdir().unwrap();
        core.write(folder.path());
        let options = MemoryOptions { limit_bytes: Some(64 << 20) };
        let opened = Core::open(folder.path()).map_err(LoadError::from);
        if let Err(error) = opened.and_then(|core| load(core, &options, &mut |_| ())) {
            assert!(!error.to_string().is_empty());
        }
    }
}
