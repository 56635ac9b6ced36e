//! Invalid cores are refused with an error that says what was wrong, where, and what to do.

use std::path::Path;

use helios::core::{Core, CoreError, FILE_NAME, proto};
use helios::memory::{LoadError, PlacedCore};

use crate::support::TinyCore;

fn open(core: &TinyCore) -> Result<Core, CoreError> {
    let folder = tempfile::tempdir().unwrap();
    core.write(folder.path());
    Core::open(folder.path())
}

fn open_bytes(bytes: &[u8]) -> CoreError {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(FILE_NAME), bytes).unwrap();
    Core::open(folder.path()).unwrap_err()
}

/// Changes a valid contract and expects a refusal whose message contains `expected`.
#[track_caller]
fn check(change: impl FnOnce(&mut proto::PreparedContract), expected: &str) {
    let mut core = TinyCore::new();
    change(&mut core.contract);
    let error = open(&core).unwrap_err().to_string();
    assert!(error.contains(expected), "`{error}` should contain `{expected}`");
}

#[test]
fn a_valid_core_opens() {
    let core = open(&TinyCore::new()).unwrap();
    assert_eq!(core.contract.identity.model_name, "tiny");
    assert_eq!(core.contract.state.pages_per_request_max, 4);
    assert_eq!(core.contract.completion.token_capacity, 8);
    assert_eq!(core.assets.template, "{{ messages }}");
    assert_eq!(core.images.len(), 1);
}

#[test]
fn a_missing_core_names_its_path() {
    let error = Core::open(Path::new("/nowhere")).unwrap_err();
    assert!(
        error.to_string().starts_with("cannot read /nowhere/rank-0.safetensors: No such file"),
        "{error}"
    );
}

#[test]
fn foreign_files_are_refused() {
    let error = open_bytes(b"GGUF");
    assert!(error.to_string().contains("is not a runtime core: it has 4 bytes"), "{error}");
    let error = open_bytes(b"GGUF\x03\0\0\0 and so on");
    assert!(error.to_string().contains("bytes, and 1048576 are the limit"), "{error}");
    let mut weights = 2u64.to_le_bytes().to_vec();
    weights.extend(b"{}");
    let error = open_bytes(&weights);
    assert!(error.to_string().contains("it has no metadata"), "{error}");

    let mut core = TinyCore::new();
    core.metadata[0].1 = "pt".to_owned();
    let error = open(&core).unwrap_err();
    assert!(error.to_string().contains("does not name the format `flare-core`"), "{error}");
}

#[test]
fn shortened_and_lengthened_files_are_refused() {
    let core = TinyCore::new();
    let bytes = core.encode(b"");
    for length in [bytes.len() - 1, bytes.len() / 2, 4096, 100, 9] {
        let error = open_bytes(&bytes[..length]);
        assert!(matches!(error, CoreError::WrongLength { .. }), "{length}: {error}");
    }
    let longer = [bytes.as_slice(), b"x"].concat();
    assert!(matches!(open_bytes(&longer), CoreError::WrongLength { .. }));
}

#[test]
fn other_abis_are_refused_by_name() {
    let mut core = TinyCore::new();
    core.metadata[1].1 = "7".to_owned();
    let error = open(&core).unwrap_err().to_string();
    assert!(error.starts_with("the core has ABI 7 and this release loads ABI 1"), "{error}");
    check(|contract| contract.abi = 2, "the core has ABI 2");
}

#[test]
fn a_changed_byte_is_found_by_the_digest() {
    let core = TinyCore::new();
    let intact = core.encode(b"contract");
    let payload_bytes: usize = core.tensors.iter().map(|(_, bytes)| bytes.len()).sum();
    let mut position = intact.len() - b"contract".len() - payload_bytes;
    for (name, tensor) in &core.tensors {
        let mut changed = intact.clone();
        changed[position] ^= 1;
        position += tensor.len();
        if !name.starts_with("storage.") {
            assert!(matches!(open_bytes(&changed), CoreError::Damaged { .. }), "{name}");
        }
    }
}

#[test]
fn missing_and_wrong_tensors_are_named() {
    for index in [0, 1, 2, 3] {
        let mut core = TinyCore::new();
        let (name, _) = core.tensors.remove(index);
        let error = open(&core).unwrap_err().to_string();
        let expected = if name == "module.0" { "the file holds 0 module images" } else { &name };
        assert!(error.contains(expected), "{error}");
    }
    let mut core = TinyCore::new();
    core.tensors[0].1.truncate(4096);
    let error = open(&core).unwrap_err().to_string();
    assert!(
        error.contains("`storage.weights` of the core has 4096 bytes and its region has 8192"),
        "{error}"
    );

    let mut core = TinyCore::new();
    core.tensors.swap(0, 1);
    let error = open(&core).unwrap_err().to_string();
    assert!(error.contains("which is no multiple of 4096"), "{error}");

    let mut core = TinyCore::new();
    core.tensors[3].1 = vec![0xff];
    let error = open(&core).unwrap_err().to_string();
    assert!(error.contains("`frontend.template` of the core is not UTF-8"), "{error}");
}

#[test]
fn another_processor_is_refused_by_its_features() {
    let mut core = TinyCore::new();
    let host = proto::HostDevice {
        architecture: std::env::consts::ARCH.to_owned(),
        isa: vec!["no_such_feature".to_owned()],
    };
    core.contract.identity.as_mut().unwrap().device = Some(proto::identity::Device::Host(host));
    let folder = tempfile::tempdir().unwrap();
    core.write(folder.path());
    let Err(LoadError::Core(error)) = PlacedCore::place(Core::open(folder.path()).unwrap(), &mut |_| ())
    else {
        panic!("refused")
    };
    assert!(error.to_string().contains("a processor with no_such_feature, which this one lacks"), "{error}");
}

#[test]
fn missing_messages_are_named() {
    check(|contract| contract.identity = None, "identity is missing");
    check(|contract| contract.identity.as_mut().unwrap().device = None, "identity.device is missing");
    check(|contract| contract.limits = None, "limits is missing");
    check(|contract| contract.state = None, "state is missing");
    check(|contract| contract.completion = None, "completion is missing");
    check(|contract| contract.sampling = None, "sampling is missing");
    check(|contract| contract.frontend = None, "frontend is missing");
}

#[test]
fn unknown_enum_values_name_their_field() {
    check(|contract| contract.regions[1].role = 77, "regions[1].role is 77");
    check(|contract| contract.regions[1].backing = 0, "regions[1].backing is 0");
    check(|contract| contract.modules[0].format = 9, "modules[0].format is 9");
    check(|contract| contract.buffers[4].source = 29, "buffers[4].source is 29");
    check(|contract| contract.buffers[4].r#type = -1, "buffers[4].type is -1");
    check(|contract| contract.programs[3].family = 8, "programs[3].family is 8");
    check(|contract| contract.frontend.as_mut().unwrap().tool_parser = 99, "frontend.tool_parser is 99");
    check(
        |contract| contract.frontend.as_mut().unwrap().reasoning_parser = 0,
        "frontend.reasoning_parser is 0",
    );
}

#[test]
fn every_parser_that_the_contract_names_is_bound() {
    let open_with = |tools: proto::ToolParser, reasoning: proto::ReasoningParser| {
        let mut core = TinyCore::new();
        let frontend = core.contract.frontend.as_mut().unwrap();
        frontend.set_tool_parser(tools);
        frontend.set_reasoning_parser(reasoning);
        let bound = open(&core).unwrap().contract.frontend.clone();
        assert_eq!((bound.tool_parser, bound.reasoning_parser), (tools, reasoning));
    };
    for tools in (1..10).map(|value| proto::ToolParser::try_from(value).unwrap()) {
        open_with(tools, proto::ReasoningParser::None);
    }
    for reasoning in (1..6).map(|value| proto::ReasoningParser::try_from(value).unwrap()) {
        open_with(proto::ToolParser::None, reasoning);
    }
    open_with(proto::ToolParser::Harmony, proto::ReasoningParser::Harmony);
}

#[test]
fn messages_that_hold_calls_and_reasoning_are_parsed_for_both() {
    let wanted = "frontend.tool_parser and frontend.reasoning_parser must both be harmony";
    check(|contract| contract.frontend.as_mut().unwrap().set_tool_parser(proto::ToolParser::Harmony), wanted);
    check(
        |contract| {
            contract.frontend.as_mut().unwrap().set_reasoning_parser(proto::ReasoningParser::Harmony);
        },
        wanted,
    );
}

#[test]
fn identity_and_limits_are_checked() {
    check(|contract| contract.identity.as_mut().unwrap().model_name.clear(), "identity.model_name is empty");
    check(
        |contract| contract.identity.as_mut().unwrap().storage_digest = "AB".to_owned(),
        "identity.storage_digest is not 64 lower-case hexadecimal digits",
    );
    check(|contract| contract.limits.as_mut().unwrap().requests_max = 0, "limits.requests_max is 0");
    check(|contract| contract.limits.as_mut().unwrap().vocabulary = u32::MAX, "limits.vocabulary is");
    check(
        |contract| contract.limits.as_mut().unwrap().context_tokens_max = 1,
        "limits.context_tokens_max is 1",
    );
}

#[test]
fn regions_are_checked() {
    check(|contract| contract.regions[1].address += 4096, "which is no multiple of 2 MiB");
    check(|contract| contract.regions[1].bytes = 100, "regions[1].bytes is 100");
    check(|contract| contract.regions[1].address = 0x2000_0000, "leave the device's window");
    check(|contract| contract.regions[1].bytes = u64::MAX - 4095, "leave the device's window");
    check(
        |contract| contract.regions[1].address = contract.regions[0].address,
        "regions[1].address overlaps region `weights`",
    );
    check(|contract| contract.regions[2].name = "io".to_owned(), "regions[2].name repeats the name `io`");
    check(|contract| contract.regions[2].name = "a/b".to_owned(), "regions[2].name is no name");
    check(|contract| contract.regions[3].backing = 2, "regions[3].backing is Zeroed");
    check(|contract| contract.regions.clear(), "regions's length is 0");
}

#[test]
fn buffers_are_checked() {
    check(|contract| contract.buffers[1].shape[0] = 3, "buffers[1] is DATA_TYPE_I64[3]");
    check(|contract| contract.buffers[1].r#type = 2, "VALUE_SOURCE_LANE_SLOTS is DATA_TYPE_I64[2]");
    check(|contract| contract.buffers[1].region = 9, "buffers[1].region is 9, and there are 5");
    check(|contract| contract.buffers[1].region = 0, "names region `weights`");
    check(|contract| contract.buffers[1].offset_bytes = 1 << 20, "buffers[1].offset_bytes is 1048576");
    check(|contract| contract.buffers[1].offset_bytes = u64::MAX, "buffers[1].offset_bytes is");
    check(|contract| contract.buffers[1].offset_bytes += 4, "are not aligned");
    check(
        |contract| contract.buffers[1].offset_bytes = contract.buffers[0].offset_bytes,
        "buffers[1] repeats or overlaps the buffer of VALUE_SOURCE_FRAME",
    );
    check(
        |contract| contract.buffers.push(contract.buffers[0].clone()),
        "buffers[24] repeats or overlaps the buffer of VALUE_SOURCE_FRAME",
    );
}

#[test]
fn geometry_is_checked() {
    fn state(contract: &mut proto::PreparedContract) -> &mut proto::StateSchema {
        contract.state.as_mut().unwrap()
    }
    check(|contract| state(contract).rows_region = 4, "state.rows_region must name the core's only region");
    check(|contract| state(contract).pages_region = 40, "state.pages_region is 40, and there are 5");
    check(|contract| state(contract).row_stride_bytes = 0, "state.row_stride_bytes is 0");
    check(|contract| state(contract).row_stride_bytes = 1 << 19, "does not hold the 3 that are needed");
    check(|contract| state(contract).page_stride_bytes = 8 << 20, "does not hold the 4 that are needed");
    check(|contract| state(contract).page_tokens = 0, "state.page_tokens is 0");
    check(|contract| state(contract).rows_per_slot = 0, "state.rows_per_slot is 0");
    check(|contract| state(contract).row_segments[0].bytes = u64::MAX, "state.row_segments[0] ends beyond");
    check(
        |contract| {
            let segments = &mut state(contract).page_segments;
            segments.push(segments[0].clone());
        },
        "state.page_segments[1] is empty or starts before byte 8192",
    );
    check(
        |contract| contract.completion.as_mut().unwrap().metadata_fields = 15,
        "completion.metadata_fields is 15",
    );
    check(|contract| contract.completion.as_mut().unwrap().token_capacity = 7, "VALUE_SOURCE_COMPLETION is");
    check(|contract| contract.completion.as_mut().unwrap().frames = 0, "completion.frames is 0");
}

#[test]
fn programs_are_checked() {
    check(|contract| contract.kernels[0].module = 1, "kernels[0].module is 1, and there are 1");
    check(|contract| contract.kernels[0].symbol = "a\0b".to_owned(), "kernels[0].symbol is no symbol name");
    check(
        |contract| contract.programs[3].nodes[0].kernel = 4,
        "programs[3].nodes[0].kernel is 4, and there are 4",
    );
    check(
        |contract| contract.programs[3].nodes[0].arguments[0] = 0x1fff_0000_0000,
        "programs[3].nodes[0].arguments[0] is address 0x1fff00000000, which lies in no region",
    );
    check(|contract| contract.programs[3].nodes.clear(), "programs[3].nodes's length is 0");
    check(
        |contract| contract.programs[3].bindings[5] = 24,
        "programs[3].bindings[5] is 24, and there are 24",
    );
    check(
        |contract| contract.programs[1].bindings.retain(|&index| index != 1),
        "programs[1].bindings lack VALUE_SOURCE_LANE_SLOTS, which programs of OPERATION_FAMILY_DECODE take",
    );
    check(|contract| contract.programs[3].cost_ms = f64::NAN, "programs[3].cost_ms is NaN");
    check(|contract| contract.programs[3].name = "reset".to_owned(), "programs[7].name repeats `reset`");
    check(
        |contract| contract.programs[3].edges.push(proto::Edge { from: 0, to: 0, ..Default::default() }),
        "programs[3].edges[0] leads from node 0 back to node 0",
    );
}

#[test]
fn families_are_complete_and_capacities_grow() {
    for index in [0, 3, 4, 5, 6, 7] {
        check(|contract| drop(contract.programs.remove(index)), "lack the family OPERATION_FAMILY_");
    }
    check(|contract| drop(contract.programs.remove(2)), "VALUE_SOURCE_LANE_SLOTS is DATA_TYPE_I64[1]");
    check(|contract| contract.programs.swap(1, 2), "have capacities [2, 1], which do not grow");
    check(|contract| contract.programs[0].tokens = 32, "the largest prefill program's tokens is 32");
    check(|contract| contract.programs[0].requests = 2, "programs[0].requests is 2");
    check(|contract| contract.programs[1].tokens = 1, "programs[1].tokens is 1");
    check(|contract| contract.programs[3].requests = 3, "the largest resume program's requests is 3");
}

#[test]
fn sampling_and_frontend_are_checked() {
    fn sampling(contract: &mut proto::PreparedContract) -> &mut proto::SamplingDefaults {
        contract.sampling.as_mut().unwrap()
    }
    check(|contract| sampling(contract).temperature = 0.0, "sampling.temperature is 0");
    check(|contract| sampling(contract).temperature = f32::NAN, "sampling.temperature is NaN");
    check(|contract| sampling(contract).top_p = 1.5, "sampling.top_p is 1.5");
    check(|contract| sampling(contract).min_p = -0.5, "sampling.min_p is -0.5");
    check(|contract| sampling(contract).repetition_penalty = 0.0, "sampling.repetition_penalty is 0");
    check(
        |contract| sampling(contract).temperature_range.as_mut().unwrap().maximum = 0.5,
        "sampling.temperature_range.maximum is 0.5",
    );
    check(|contract| contract.frontend.as_mut().unwrap().eos_tokens[0] = 40, "frontend.eos_tokens[0] is 40");
}
