"""Builds the contract message from a captured session. What it says is what Helios will hold the core to."""

import importlib.metadata
import platform
from datetime import UTC, datetime

import torch

from ignition.components.state import (
    BIAS_ENTRIES_MAX,
    COMPLETION_FIELDS,
    FRAMES,
    LOGPROBS_MAX,
    TOKEN_CAPACITY,
    Segment,
)
from ignition.devices.device import EncodedPrograms
from ignition.export import core_pb2
from ignition.preparation.session import RecordedPreparationSession
from ignition.preparation.storage import Region, Role

ABI = 1
VERSIONED_PACKAGES = ("flare-ignition", "torch", "transformers")

_BACKINGS = {
    Role.WEIGHTS: core_pb2.REGION_BACKING_STORAGE,
    Role.IO: core_pb2.REGION_BACKING_ZEROED,
    Role.SCRATCH: core_pb2.REGION_BACKING_ZEROED,
    Role.ROWS: core_pb2.REGION_BACKING_ELASTIC,
    Role.PAGES: core_pb2.REGION_BACKING_ELASTIC,
}
_DATA_TYPES = {
    torch.uint8: core_pb2.DATA_TYPE_U8,
    torch.int32: core_pb2.DATA_TYPE_I32,
    torch.int64: core_pb2.DATA_TYPE_I64,
    torch.uint32: core_pb2.DATA_TYPE_U32,
    torch.float32: core_pb2.DATA_TYPE_F32,
    torch.bfloat16: core_pb2.DATA_TYPE_BF16,
}


def build_contract(
    session: RecordedPreparationSession, encoded: EncodedPrograms, *, storage_digest: str
) -> core_pb2.PreparedContract:
    """The whole message."""
    contract = core_pb2.PreparedContract(
        abi=ABI,
        identity=identity(session, storage_digest),
        limits=core_pb2.Limits(
            context_tokens_max=session.capacities.context_tokens_max,
            requests_max=session.capacities.requests_max,
            vocabulary=session.state.vocabulary,
            prefill_tokens_max=session.capacities.prefill_tokens_max,
            bias_entries_max=BIAS_ENTRIES_MAX,
            logprobs_max=LOGPROBS_MAX,
        ),
        regions=[region_message(region) for region in session.storage.regions],
        modules=encoded.modules,
        kernels=encoded.kernels,
        state=state_message(session),
        completion=core_pb2.CompletionLayout(
            metadata_fields=COMPLETION_FIELDS, token_capacity=TOKEN_CAPACITY, frames=FRAMES
        ),
        sampling=sampling_message(session),
        frontend=frontend_message(session),
    )
    sources = add_buffers(contract, session)
    add_programs(contract, session, encoded, sources)
    return contract


def identity(session: RecordedPreparationSession, storage_digest: str) -> core_pb2.Identity:
    """Who the core is: the model, its storage and the machine it runs on."""
    packages = [f"{name} {importlib.metadata.version(name)}" for name in VERSIONED_PACKAGES]
    message = core_pb2.Identity(
        model_name=session.model.name,
        model_fingerprint=session.model.fingerprint,
        storage_digest=storage_digest,
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        versions=", ".join([*packages, f"python {platform.python_version()}"]),
    )
    session.device.identify(message)
    return message


def region_message(region: Region) -> core_pb2.Region:
    """A region; elastic ones keep their whole reservation, for memory decides their extent at load."""
    backing = _BACKINGS[region.role]
    elastic = backing == core_pb2.REGION_BACKING_ELASTIC
    return core_pb2.Region(
        name=region.name,
        address=region.address,
        bytes=region.reserved_bytes if elastic else region.size_bytes,
        role=core_pb2.RegionRole.Name(region.role.value),
        backing=backing,
    )


def state_message(session: RecordedPreparationSession) -> core_pb2.StateSchema:
    """Row and page geometry."""
    layout = session.state.layout
    roles = [region.role for region in session.storage.regions]

    def segments(all_of: tuple[Segment, ...]) -> list[core_pb2.Segment]:
        return [core_pb2.Segment(name=one.name, offset_bytes=one.offset, bytes=one.size) for one in all_of]

    return core_pb2.StateSchema(
        rows_region=roles.index(Role.ROWS),
        row_stride_bytes=layout.row_stride,
        rows_per_slot=layout.rows_per_slot,
        row_segments=segments(layout.row_segments),
        pages_region=roles.index(Role.PAGES),
        page_stride_bytes=layout.page_stride,
        page_tokens=layout.page_tokens,
        page_segments=segments(layout.page_segments),
    )


def sampling_message(session: RecordedPreparationSession) -> core_pb2.SamplingDefaults:
    """The model card's defaults."""
    defaults = session.model.sampling
    message = core_pb2.SamplingDefaults(
        temperature=defaults.temperature,
        top_k=defaults.top_k,
        top_p=defaults.top_p,
        min_p=defaults.min_p,
        repetition_penalty=defaults.repetition_penalty,
        presence_penalty=defaults.presence_penalty,
        frequency_penalty=defaults.frequency_penalty,
    )
    if defaults.temperature_range is not None:
        minimum, maximum = defaults.temperature_range
        message.temperature_range.CopyFrom(core_pb2.Range(minimum=minimum, maximum=maximum))
    return message


def frontend_message(session: RecordedPreparationSession) -> core_pb2.Frontend:
    """The frontend's enums and texts; its assets are tensors of their own."""
    frontend = session.model.frontend
    return core_pb2.Frontend(
        eos_tokens=frontend.eos_tokens,
        bos_text=frontend.bos_text,
        eos_text=frontend.eos_text,
        tool_parser=core_pb2.ToolParser.Name(frontend.tool_parser.value),
        reasoning_parser=core_pb2.ReasoningParser.Name(frontend.reasoning_parser.value),
    )


def add_buffers(contract: core_pb2.PreparedContract, session: RecordedPreparationSession) -> dict[str, int]:
    """The value buffers; their index by name."""
    region = next(index for index, one in enumerate(session.storage.regions) if one.role is Role.IO)
    base = session.storage.io.address
    for name, tensor in session.state.buffers.by_name().items():
        contract.buffers.add(
            source=core_pb2.ValueSource.Value(f"VALUE_SOURCE_{name.upper()}"),
            region=region,
            offset_bytes=tensor.data_ptr() - base,
            type=_DATA_TYPES[tensor.dtype],
            shape=tensor.shape,
        )
    return {name: index for index, name in enumerate(session.state.buffers.by_name())}


def add_programs(
    contract: core_pb2.PreparedContract,
    session: RecordedPreparationSession,
    encoded: EncodedPrograms,
    sources: dict[str, int],
) -> None:
    """The programs, as the device put them."""
    for program, nodes, edges in zip(session.programs, encoded.nodes, encoded.edges, strict=True):
        contract.programs.add(
            name=program.plan.name,
            family=core_pb2.OperationFamily.Name(program.plan.family.value),
            requests=program.plan.requests,
            tokens=program.plan.tokens,
            nodes=nodes,
            edges=edges,
            bindings=[sources[name] for name in program.bindings],
            cost_ms=program.cost_ms,
        )
