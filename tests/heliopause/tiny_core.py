"""A small valid core, written without Ignition: its contract by hand, its machine code from a few lines of C."""

import hashlib
import importlib
import json
import platform
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
BASE = 0x1B00_0000_0000
WEIGHTS = bytes(i % 251 for i in range(4096))

KERNELS = """
#include <stdint.h>
void test_add(void *const *args) {
  const int64_t *x = args[0], *y = args[1];
  int64_t *out = args[2];
  for (int64_t i = 0; i < (int64_t)args[3]; ++i) out[i] = x[i] + y[i];
}
"""

# Slots 1, vocabulary 32, context 128 in pages of 64 tokens, one lane, chunks of 64, one frame.
BUFFERS = [
    ("FRAME", "I64", [1]),
    ("LANE_SLOTS", "I64", [1]),
    ("LANE_EPOCHS", "I64", [1]),
    ("LANE_MASKED", "I64", [1]),
    ("GRAMMAR_MASKS", "U32", [1, 1]),
    ("PREFILL_COMMAND", "I64", [8]),
    ("PREFILL_TOKENS", "I64", [64]),
    ("ADMISSION_COMMAND", "I64", [8]),
    ("ADMISSION_FIELDS", "I64", [16]),
    ("ADMISSION_PARAMETERS", "F32", [8]),
    ("ADMISSION_PROMPT", "I64", [128]),
    ("ADMISSION_BIAS_TOKENS", "I64", [1]),
    ("ADMISSION_BIAS_VALUES", "F32", [1]),
    ("STATE_COMMAND", "I64", [8]),
    ("PAGE_TABLE", "I32", [1, 2]),
    ("COMPLETION", "I64", [1, 1, 24]),
    ("LOGPROB_TOKENS", "I64", [1, 1, 1]),
    ("LOGPROB_VALUES", "F32", [1, 1, 2]),
]
REGIONS = [
    ("weights", len(WEIGHTS), "WEIGHTS", "STORAGE"),
    ("io", 8192, "IO", "ZEROED"),
    ("rows", 1 << 20, "ROWS", "ELASTIC"),
    ("pages", 1 << 20, "PAGES", "ELASTIC"),
]


def messages(folder: Path) -> ModuleType:
    """The contract's message classes, generated from Helios' definition into `folder`."""
    proto = ROOT / "helios/proto"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{proto}", f"--python_out={folder}", "core.proto"]
    subprocess.run(command, check=True)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("core_pb2")
    finally:
        sys.path.remove(str(folder))


def write_core(folder: Path, pb: ModuleType) -> None:
    """Writes the core into `folder`."""
    source, image = folder / "kernels.c", folder / "kernels.so"
    source.write_text(KERNELS)
    subprocess.run(["cc", "-O1", "-fPIC", "-shared", "-o", image, source], check=True)
    write_file(folder, build_contract(pb).SerializeToString(), [image.read_bytes()], WEIGHTS)


def write_file(folder: Path, contract: bytes, images: list[bytes], weights: bytes) -> None:
    """Writes a core's file of these parts into `folder`."""
    digested = [("contract", contract), *((f"module.{index}", image) for index, image in enumerate(images))]
    digested += [("frontend.tokenizer", b"{}"), ("frontend.template", b"{{ messages }}")]
    digest = hashlib.sha256(b"".join(data for _, data in digested)).hexdigest()

    header: dict[str, Any] = {"__metadata__": {"format": "flare-core", "abi": "1", "digest": digest}}
    parts, end = [("storage.weights", weights), *digested], 0
    for name, data in parts:
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    text = text.ljust(-(-(8 + len(text)) // 4096) * 4096 - 8)
    payload = b"".join(data for _, data in parts)
    (folder / "rank-0.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + payload)


def build_contract(pb: ModuleType) -> Any:
    """The contract: prefill doubles 16 tokens into the completion record, and snapshot copies a row to a page.

    Decode does as prefill, and then doubles the grammar mask into the record's first field.
    """
    contract = pb.PreparedContract(abi=1)
    contract.identity.model_name = "tiny"
    contract.identity.model_fingerprint = contract.identity.storage_digest = "0" * 64
    contract.identity.host.architecture = platform.machine()
    limits = {"context_tokens_max": 128, "requests_max": 1, "vocabulary": 32}
    limits |= {"prefill_tokens_max": 64, "bias_entries_max": 1, "logprobs_max": 1}
    contract.limits.MergeFrom(pb.Limits(**limits))
    for index, (name, nbytes, role, backing) in enumerate(REGIONS):
        role, backing = f"REGION_ROLE_{role}", f"REGION_BACKING_{backing}"
        contract.regions.add(name=name, address=BASE + (index << 28), bytes=nbytes, role=role, backing=backing)
    contract.modules.add(name="kernels", format="MODULE_FORMAT_ELF")
    contract.kernels.add(module=0, symbol="test_add")
    address, offset = {}, 0
    for source, data_type, shape in BUFFERS:
        names = {"source": f"VALUE_SOURCE_{source}", "type": f"DATA_TYPE_{data_type}"}
        contract.buffers.add(region=1, offset_bytes=offset, shape=shape, **names)
        address[source] = contract.regions[1].address + offset
        offset += 1024
        assert offset <= 1024 * len(BUFFERS)
    contract.regions[1].bytes = -(-offset // 4096) * 4096
    for kind, region, stride in [("row", 2, 4096), ("page", 3, 8192)]:
        setattr(contract.state, f"{kind}s_region", region)
        setattr(contract.state, f"{kind}_stride_bytes", stride)
        getattr(contract.state, f"{kind}_segments").add(name="all", offset_bytes=0, bytes=stride)
    contract.state.rows_per_slot, contract.state.page_tokens = 1, 64
    contract.completion.MergeFrom(pb.CompletionLayout(metadata_fields=16, token_capacity=8, frames=1))
    add_programs(contract, address)
    contract.sampling.MergeFrom(pb.SamplingDefaults(temperature=1, top_p=1, repetition_penalty=1))
    parsers = {"tool_parser": "TOOL_PARSER_NONE", "reasoning_parser": "REASONING_PARSER_NONE"}
    contract.frontend.MergeFrom(pb.Frontend(eos_tokens=[0], **parsers))
    return contract


def add_programs(contract: Any, address: dict[str, int]) -> None:
    """One program of each family."""
    rows, pages = contract.regions[2].address, contract.regions[3].address
    double = [address["PREFILL_TOKENS"], address["PREFILL_TOKENS"], address["COMPLETION"], 16]
    weights = [contract.regions[0].address, contract.regions[0].address, address["COMPLETION"], 16]
    to_page = [rows, rows, pages, 512]
    masks = [address["GRAMMAR_MASKS"], address["GRAMMAR_MASKS"], address["COMPLETION"], 1]
    for name, family, tokens, arguments in [
        ("prefill.64", "PREFILL", 64, double),
        ("decode.1", "DECODE", 0, double),
        ("resume.1", "RESUME", 0, double),
        ("initialize", "INITIALIZE", 0, weights),
        ("restore", "RESTORE", 0, to_page),
        ("snapshot", "SNAPSHOT", 0, to_page),
        ("reset", "RESET", 0, double),
    ]:
        program = contract.programs.add(name=name, family=f"OPERATION_FAMILY_{family}", requests=1, tokens=tokens)
        program.nodes.add(kernel=0, arguments=arguments)
        if name == "decode.1":
            program.nodes.add(kernel=0, arguments=masks)
        program.bindings.extend(range(len(BUFFERS)))
