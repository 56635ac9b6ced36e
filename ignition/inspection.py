"""`ignition inspect`: what a core holds, for a person. Reads the file's header and its contract, never a payload."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from ignition.errors import UsageError
from ignition.export import core_pb2
from ignition.export.corefile import CoreReader

ABI = 1


@dataclass(frozen=True)
class CoreSummary:
    """A core's file as far as its header and contract say."""

    path: Path
    digest: str
    tensor_bytes: dict[str, int]
    contract: core_pb2.PreparedContract


def read_core(folder: Path) -> CoreSummary:
    """Open `core/`. Raises `PreparationError` for what is not a core, `UsageError` for one of another ABI."""
    with CoreReader(folder) as reader:
        try:
            contract = core_pb2.PreparedContract.FromString(reader.read("contract"))
        except DecodeError as error:
            raise UsageError(f"the contract in {reader.path} cannot be read; prepare the core again") from error
        sizes = {name: reader.size(name) for name in reader.names()}
        if contract.abi != ABI:
            raise UsageError(f"{reader.path} has ABI {contract.abi}; this release reads ABI {ABI}")
        return CoreSummary(reader.path, reader.metadata.get("digest", ""), sizes, contract)


def describe(core: CoreSummary) -> Iterator[str]:
    """The lines that `ignition inspect` prints."""
    contract = core.contract
    yield f"{core.path}, {human_bytes(sum(core.tensor_bytes.values()))}, ABI {contract.abi}"
    yield f"digest {core.digest}"
    sections = {
        "identity": identity_lines(contract.identity),
        "limits": limit_lines(contract),
        "regions": region_lines(contract),
        "modules": module_lines(core),
        "programs": program_lines(contract),
        "state": state_lines(contract),
        "sampling defaults": sampling_lines(contract.sampling),
        "frontend": frontend_lines(core),
    }
    for title, lines in sections.items():
        yield ""
        yield title
        yield from (f"  {line}" for line in lines)


def identity_lines(identity: core_pb2.Identity) -> Iterator[str]:
    """Who the core is, and the machine it is for."""
    yield f"model        {identity.model_name}"
    yield f"fingerprint  {identity.model_fingerprint}"
    if identity.WhichOneof("device") == "cuda":
        cuda = identity.cuda
        yield f"device       cuda {cuda.compute_major}.{cuda.compute_minor}, {cuda.multiprocessors} multiprocessors"
    else:
        yield f"device       host {identity.host.architecture}: {' '.join(identity.host.isa)}"
    yield f"created      {identity.created}"
    yield f"versions     {identity.versions}"


def limit_lines(contract: core_pb2.PreparedContract) -> Iterator[str]:
    """What one request and all requests may take."""
    limits = contract.limits
    decode = [program.requests for program in contract.programs if family(program) == "decode"]
    prefill = [program.tokens for program in contract.programs if family(program) == "prefill"]
    yield f"{limits.context_tokens_max} tokens a request, {limits.requests_max} requests"
    yield f"vocabulary of {limits.vocabulary}"
    yield f"decode capacities {decode}, prefill capacities {prefill}"
    yield f"{limits.bias_entries_max} logit biases and {limits.logprobs_max} logprobs a request"


def region_lines(contract: core_pb2.PreparedContract) -> Iterator[str]:
    """The fixed address ranges."""
    for region in contract.regions:
        backing = core_pb2.RegionBacking.Name(region.backing).removeprefix("REGION_BACKING_").lower()
        yield f"{region.name:<10} {region.address:#x}  {human_bytes(region.bytes):>11}  {backing}"


def module_lines(core: CoreSummary) -> Iterator[str]:
    """The loadable images and how many entries programs use of each."""
    for index, module in enumerate(core.contract.modules):
        kernels = sum(kernel.module == index for kernel in core.contract.kernels)
        yield f"{module.name:<10} {human_bytes(core.tensor_bytes.get(f'module.{index}', 0)):>11}  {kernels} entries"


def program_lines(contract: core_pb2.PreparedContract) -> Iterator[str]:
    """Every captured program."""
    yield f"{'name':<14} {'family':<11} {'requests':>8} {'tokens':>7} {'nodes':>6} {'cost':>12}"
    for program in contract.programs:
        yield (
            f"{program.name:<14} {family(program):<11} {program.requests:>8} {program.tokens:>7} "
            f"{len(program.nodes):>6} {program.cost_ms:>9.3f} ms"
        )


def state_lines(contract: core_pb2.PreparedContract) -> Iterator[str]:
    """How a request's state lies in rows and pages."""
    state = contract.state
    yield f"row   {human_bytes(state.row_stride_bytes)}, {state.rows_per_slot} a request"
    yield from (f"  {segment.name:<16} {human_bytes(segment.bytes):>11}" for segment in state.row_segments)
    per_token = state.page_stride_bytes // max(1, state.page_tokens)
    page = human_bytes(state.page_stride_bytes)
    yield f"page  {page} of {state.page_tokens} tokens, {human_bytes(per_token)} a token"
    yield f"  {len(state.page_segments)} segments"


def sampling_lines(sampling: core_pb2.SamplingDefaults) -> Iterator[str]:
    """What a request gets that states nothing."""
    for field in sampling.DESCRIPTOR.fields:
        if field.name != "temperature_range":
            yield f"{field.name:<20} {getattr(sampling, field.name):g}"


def frontend_lines(core: CoreSummary) -> Iterator[str]:
    """The text side."""
    frontend = core.contract.frontend
    yield f"tokenizer    {human_bytes(core.tensor_bytes.get('frontend.tokenizer', 0))}"
    yield f"template     {human_bytes(core.tensor_bytes.get('frontend.template', 0))}"
    yield f"end tokens   {list(frontend.eos_tokens)}  {frontend.eos_text!r}, begin {frontend.bos_text!r}"
    yield f"tools        {core_pb2.ToolParser.Name(frontend.tool_parser).removeprefix('TOOL_PARSER_').lower()}"
    reasoning = core_pb2.ReasoningParser.Name(frontend.reasoning_parser).removeprefix("REASONING_PARSER_")
    yield f"reasoning    {reasoning.lower()}"


def family(program: core_pb2.Program) -> str:
    """A program's operation family as a word."""
    return str(core_pb2.OperationFamily.Name(program.family).removeprefix("OPERATION_FAMILY_").lower())


def human_bytes(count: float) -> str:
    """A size for a person."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
