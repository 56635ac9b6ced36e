//! What a loaded core does: memory in place, programs in order, bounds on what is in flight, and an orderly end.

use std::time::Duration;

use helios::core::Core;
use helios::core::proto::{OperationFamily, ValueSource};
use helios::device::{BufferId, DeviceError, ProgramId};
use helios::memory::{LoadError, LoadedCore, MemoryOptions, load};

use crate::support::TinyCore;

const SECOND: Duration = Duration::from_secs(20);

fn load_tiny(core: &TinyCore) -> Result<LoadedCore, LoadError> {
    let folder = tempfile::tempdir().unwrap();
    core.write(folder.path());
    load(Core::open(folder.path())?, &MemoryOptions { limit_bytes: Some(64 << 20) }, &mut |_| ())
}

fn buffer(core: &LoadedCore, source: ValueSource) -> BufferId {
    core.contract.buffer(source).unwrap()
}

fn program(core: &LoadedCore, name: &str) -> ProgramId {
    let index = core.contract.programs.iter().position(|program| program.name == name).unwrap();
    ProgramId(index as u32)
}

fn upload(core: &mut LoadedCore, source: ValueSource, values: &[i64]) -> Result<(), DeviceError> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let buffer = buffer(core, source);
    core.executor.upload(buffer, 0, &bytes)
}

fn run(core: &mut LoadedCore, name: &str) {
    let fence = core.executor.launch(program(core, name)).unwrap();
    core.executor.wait(fence, SECOND).unwrap();
}

/// The first `count` integers of the completion frames.
fn completion(core: &mut LoadedCore, count: usize) -> Vec<i64> {
    let mut bytes = vec![0; count * 8];
    let buffer = buffer(core, ValueSource::Completion);
    core.executor.read(buffer, 0, &mut bytes).unwrap();
    bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn a_program_computes_on_what_was_uploaded() {
    let mut core = load_tiny(&TinyCore::new()).unwrap();
    upload(&mut core, ValueSource::PrefillTokens, &(0..64).collect::<Vec<_>>()).unwrap();
    run(&mut core, "prefill.64");
    assert_eq!(completion(&mut core, 32), (0..32).map(|value| 2 * value).collect::<Vec<_>>());
    upload(&mut core, ValueSource::AdmissionPrompt, &(1..=256).collect::<Vec<_>>()).unwrap();
    run(&mut core, "decode.2");
    assert_eq!(completion(&mut core, 1), [256 * 257 / 2]);
}

#[test]
fn weights_are_the_files_bytes() {
    let mut core = load_tiny(&TinyCore::new()).unwrap();
    run(&mut core, "initialize");
    let word = |index: usize| {
        let bytes: Vec<u8> = (0..8).map(|byte| ((8 * index + byte) % 251) as u8).collect();
        i64::from_le_bytes(bytes.try_into().unwrap()).wrapping_mul(2)
    };
    assert_eq!(completion(&mut core, 32), (0..32).map(word).collect::<Vec<_>>());
    let refused = core.executor.write_region(0, 0, &[1], SECOND);
    assert!(matches!(refused, Err(DeviceError::Unmapped { .. })), "weights are read-only: {refused:?}");
}

#[test]
fn rows_and_pages_hold_state() {
    let mut core = load_tiny(&TinyCore::new()).unwrap();
    let row: Vec<u8> = (0..512u64).flat_map(u64::to_le_bytes).collect();
    core.executor.write_region(3, 0, &row, SECOND).unwrap();
    run(&mut core, "restore");
    run(&mut core, "snapshot");
    let mut page = vec![0; 4096];
    core.executor.read_region(4, 8192, &mut page, SECOND).unwrap();
    assert_eq!(page, (0..512u64).flat_map(|value| (4 * value).to_le_bytes()).collect::<Vec<_>>());

    let pages_bytes = u64::from(core.memory.pages) * core.memory.page_bytes;
    let beyond = core.executor.read_region(4, pages_bytes, &mut page, SECOND);
    assert!(matches!(beyond, Err(DeviceError::Unmapped { .. })), "{beyond:?}");
}

#[test]
fn uploads_and_launches_take_effect_in_order() {
    let mut core = load_tiny(&TinyCore::new()).unwrap();
    let append = program(&core, "decode.1");
    for value in 1..=47 {
        upload(&mut core, ValueSource::LaneSlots, &[value]).unwrap();
        core.executor.launch(append).unwrap();
    }
    let fence = core.executor.launch(program(&core, "reset")).unwrap();
    core.executor.wait(fence, SECOND).unwrap();
    assert!(core.executor.is_complete(fence).unwrap());
    assert_eq!(completion(&mut core, 48), [&[47], (1..=47).collect::<Vec<_>>().as_slice()].concat());
}

#[test]
fn a_slow_program_holds_its_fence_and_a_full_queue_is_busy() {
    let mut core = load_tiny(&TinyCore::new()).unwrap();
    upload(&mut core, ValueSource::LaneSlots, &[300]).unwrap();
    let sleep = program(&core, "resume.1");
    let fence = core.executor.launch(sleep).unwrap();
    assert!(!core.executor.is_complete(fence).unwrap());
    let waited = core.executor.wait(fence, Duration::from_millis(10));
    assert_eq!(waited, Err(DeviceError::Timeout { timeout_ms: 10 }));

    upload(&mut core, ValueSource::LaneSlots, &[0]).unwrap();
    let mut last = fence;
    let busy = loop {
        match core.executor.launch(sleep) {
            Ok(fence) => last = fence,
            Err(error) => break error,
        }
    };
    assert!(matches!(busy, DeviceError::Busy { .. }), "{busy:?}");
    assert_eq!(upload(&mut core, ValueSource::LaneSlots, &[1]), Err(busy));
    assert!(last > fence);
    core.executor.wait(last, SECOND).unwrap();
    upload(&mut core, ValueSource::LaneSlots, &[1]).unwrap();
}

#[test]
fn bytes_beyond_a_buffer_are_refused() {
    let mut core = load_tiny(&TinyCore::new()).unwrap();
    let slots = buffer(&core, ValueSource::LaneSlots);
    let refused = core.executor.upload(slots, 9, &[0; 8]);
    let expected =
        DeviceError::OutOfBounds { buffer: slots.0, offset_bytes: 9, end_bytes: 17, buffer_bytes: 16 };
    assert_eq!(refused, Err(expected.clone()));
    assert_eq!(core.executor.read(slots, 9, &mut [0; 8]), Err(expected));
    assert!(core.executor.upload(slots, u64::MAX, &[0; 8]).is_err());
}

#[test]
fn dropping_finishes_the_work_and_gives_the_addresses_back() {
    let tiny = TinyCore::new();
    for _ in 0..2 {
        let mut core = load_tiny(&tiny).unwrap();
        upload(&mut core, ValueSource::LaneSlots, &[20]).unwrap();
        for _ in 0..5 {
            core.executor.launch(program(&core, "resume.1")).unwrap();
        }
    }
    let _first = load_tiny(&tiny).unwrap();
    let Err(LoadError::Device(error)) = load_tiny(&tiny) else { panic!("the addresses are taken") };
    assert!(matches!(error, DeviceError::AddressTaken { .. }), "{error:?}");
}

#[test]
fn code_that_cannot_be_loaded_is_refused() {
    let mut core = TinyCore::new();
    core.contract.kernels[2].symbol = "no_such_entry".to_owned();
    let error = load_tiny(&core).err().unwrap().to_string();
    assert!(error.contains("`kernels` cannot be loaded: it has no entry `no_such_entry`"), "{error}");

    let mut core = TinyCore::new();
    core.tensors[1].1 = b"MZ".to_vec();
    let error = load_tiny(&core).err().unwrap().to_string();
    assert!(error.contains("it is no 64-bit ELF image"), "{error}");

    let mut core = TinyCore::new();
    core.tensors[1].1.truncate(4096);
    let error = load_tiny(&core).err().unwrap().to_string();
    assert!(error.contains("`kernels` cannot be loaded: it is cut off"), "{error}");
}

#[test]
fn families_are_found_by_the_contract() {
    let core = load_tiny(&TinyCore::new()).unwrap();
    let decode: Vec<_> =
        core.contract.programs_of(OperationFamily::Decode).map(|(_, program)| program.requests).collect();
    assert_eq!(decode, [1, 2]);
}
