"""The host's implementations of `flare::*`: inside each is one entry of operators.h, in a program one recorded call.

Results and scratch come from the recorder while a program is recorded. Importing this module registers them for
tensors in the host's memory.
"""

from collections.abc import Callable
from typing import Any

import torch

from ignition.kernels import ops
from ignition.kernels.host import entries

Tensor = torch.Tensor
Implementation = Callable[..., Any]


def host(function: Implementation) -> Implementation:
    """Register a function under its own name."""
    torch.library.impl(f"flare::{function.__name__}", "cpu")(function)
    return function


@host
def linear(x: Tensor, weight: Tensor, bias: Tensor | None, out_features: int) -> Tensor:
    """flare_linear"""
    in_features = x.shape[-1]
    rows = x.numel() // in_features
    y = entries.allocate((*x.shape[:-1], out_features), x.dtype)
    size_bytes = entries.library().measure_bytes("flare_linear_scratch_bytes", rows, out_features, in_features)
    workspace = entries.scratch(size_bytes)
    entries.call("flare_linear", contiguous(x), weight, bias, y, workspace, rows, out_features, in_features)
    return y


@host
def embedding(tokens: Tensor, token_slots: Tensor, weight: Tensor, rows: int, width: int) -> Tensor:
    """flare_embedding"""
    y = entries.allocate((*tokens.shape, width), torch.bfloat16)
    entries.call("flare_embedding", contiguous(tokens), contiguous(token_slots), weight, y, tokens.numel(), rows, width)
    return y


@host
def copy(x: Tensor) -> Tensor:
    """flare_copy"""
    y = entries.allocate(x.shape, x.dtype)
    entries.call("flare_copy", contiguous(x), y, x.numel() * x.element_size())
    return y


@host
def vocabulary(hidden: Tensor, weight: Tensor, logits: Tensor, lanes: Tensor, rows: int) -> None:
    """flare_vocabulary"""
    entries.call("flare_vocabulary", contiguous(hidden), weight, logits, lanes, hidden.shape[0], rows, hidden.shape[1])


@host
def kv_write(
    key: Tensor, value: Tensor, token_slots: Tensor, positions: Tensor, page_table: Tensor, pages: Tensor, *place: int
) -> None:
    """flare_kv_write; `place` is page_stride, key_offset, value_offset."""
    count, heads, width = key.shape
    entries.call(
        "flare_kv_write",
        *(contiguous(key), contiguous(value), contiguous(token_slots), contiguous(positions), page_table, pages),
        *(count, heads, width, page_table.shape[1], *place),
    )


@host
def attention(
    query: Tensor,
    token_slots: Tensor,
    positions: Tensor,
    page_table: Tensor,
    pages: Tensor,
    key_value_heads: int,
    page_stride: int,
    key_offset: int,
    value_offset: int,
    scale: float,
    window: int,
    context_tokens: int,
) -> Tensor:
    """flare_attention"""
    count, heads, width = query.shape
    y = entries.allocate((count, heads, width), query.dtype)
    size_bytes = entries.library().measure_bytes("flare_attention_scratch_bytes", count, heads, width, context_tokens)
    workspace = entries.scratch(size_bytes)
    entries.call(
        "flare_attention",
        *(contiguous(query), contiguous(token_slots), contiguous(positions), page_table, pages, y, workspace),
        *(count, heads, key_value_heads, width, page_table.shape[1], page_stride, key_offset, value_offset),
        *(scale, window, workspace.numel()),
    )
    return y


@host
def begin_decode(
    lane_slots: Tensor,
    lane_epochs: Tensor,
    lane_masked: Tensor,
    request_fields: Tensor,
    lanes: int,
    vocabulary: int,
    context_tokens: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """flare_begin_decode"""
    batch = allocate_batch(tokens=lanes, lanes=lanes)
    entries.call(
        "flare_begin_decode",
        *(lane_slots, lane_epochs, lane_masked, request_fields, *batch),
        *(lanes, request_fields.shape[0], vocabulary, context_tokens),
    )
    return batch


@host
def begin_prefill(
    command: Tensor, prefill_tokens: Tensor, request_fields: Tensor, tokens: int, vocabulary: int, context_tokens: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """flare_begin_prefill"""
    batch = allocate_batch(tokens=tokens, lanes=1)
    entries.call(
        "flare_begin_prefill",
        *(command, prefill_tokens, request_fields, *batch),
        *(tokens, request_fields.shape[0], vocabulary, context_tokens),
    )
    return batch


@host
def begin_resume(
    lane_slots: Tensor,
    lane_epochs: Tensor,
    lane_masked: Tensor,
    request_fields: Tensor,
    rows: Tensor,
    lanes: int,
    hidden: int,
    *row_geometry: int,
) -> tuple[Tensor, Tensor]:
    """flare_begin_resume; `row_geometry` is row_stride, rows_per_slot, hidden_offset."""
    saved = entries.allocate((lanes, hidden), torch.bfloat16)
    lane_records = entries.allocate((lanes, ops.LANE_FIELDS), torch.int64)
    entries.call(
        "flare_begin_resume",
        *(lane_slots, lane_epochs, lane_masked, request_fields, rows, saved, lane_records),
        *(lanes, request_fields.shape[0], hidden, *row_geometry),
    )
    return saved, lane_records


@host
def commit_decode(hidden: Tensor, lanes: Tensor, request_fields: Tensor, rows: Tensor, *row_geometry: int) -> None:
    """flare_commit_decode"""
    sizes = (lanes.shape[0], hidden.shape[-1])
    entries.call("flare_commit_decode", contiguous(hidden), lanes, request_fields, rows, *sizes, *row_geometry)


@host
def commit_prefill(
    hidden: Tensor, command: Tensor, lanes: Tensor, request_fields: Tensor, rows: Tensor, *row_geometry: int
) -> Tensor:
    """flare_commit_prefill"""
    width = hidden.shape[-1]
    last = entries.allocate((1, width), torch.bfloat16)
    entries.call(
        "flare_commit_prefill",
        *(contiguous(hidden), command, lanes, request_fields, rows, last, hidden.numel() // width, width),
        *row_geometry,
    )
    return last


@host
def sample(
    logits: Tensor,
    lanes: Tensor,
    request_fields: Tensor,
    request_parameters: Tensor,
    histogram: Tensor,
    bias_tokens: Tensor,
    bias_values: Tensor,
    grammar_masks: Tensor,
    eos_tokens: Tensor,
    frame: Tensor,
    completion: Tensor,
    logprob_tokens: Tensor,
    logprob_values: Tensor,
    token_capacity: int,
    family: int,
) -> None:
    """flare_sample"""
    count, vocabulary = lanes.shape[0], logits.shape[1]
    workspace = entries.scratch(entries.library().measure_bytes("flare_sample_scratch_bytes", count, vocabulary))
    entries.call(
        "flare_sample",
        *(logits, lanes, request_fields, request_parameters, histogram, bias_tokens, bias_values, grammar_masks),
        *(eos_tokens, frame, completion, logprob_tokens, logprob_values, workspace),
        *(count, vocabulary, request_fields.shape[0], bias_tokens.shape[1], eos_tokens.numel(), completion.shape[1]),
        *(token_capacity, logprob_tokens.shape[-1], family),
    )


@host
def initialize(
    command: Tensor,
    fields: Tensor,
    parameters: Tensor,
    prompt: Tensor,
    bias_tokens: Tensor,
    bias_values: Tensor,
    request_fields: Tensor,
    request_parameters: Tensor,
    histogram: Tensor,
    request_bias_tokens: Tensor,
    request_bias_values: Tensor,
    frame: Tensor,
    completion: Tensor,
    context_tokens: int,
    token_capacity: int,
) -> None:
    """flare_initialize"""
    slots, vocabulary = histogram.shape
    entries.call(
        "flare_initialize",
        *(command, fields, parameters, prompt, bias_tokens, bias_values, request_fields, request_parameters, histogram),
        *(request_bias_tokens, request_bias_values, frame, completion),
        *(slots, vocabulary, bias_tokens.shape[0], context_tokens, completion.shape[1], token_capacity),
    )


@host
def restore(*arguments: Any) -> None:
    """flare_restore"""
    transfer("flare_restore", *arguments)


@host
def snapshot(*arguments: Any) -> None:
    """flare_snapshot"""
    transfer("flare_snapshot", *arguments)


@host
def reset(command: Tensor, request_fields: Tensor, frame: Tensor, completion: Tensor, token_capacity: int) -> None:
    """flare_reset"""
    sizes = (request_fields.shape[0], completion.shape[1], token_capacity)
    entries.call("flare_reset", command, request_fields, frame, completion, *sizes)


def transfer(
    entry: str,
    command: Tensor,
    request_fields: Tensor,
    rows: Tensor,
    pages: Tensor,
    frame: Tensor,
    completion: Tensor,
    *sizes: int,
) -> None:
    """A copy between a slot and a row; `sizes` are the operator's, from the hidden width to the token capacity."""
    *geometry, token_capacity = sizes
    entries.call(
        entry,
        *(command, request_fields, rows, pages, frame, completion),
        *(request_fields.shape[0], *geometry, completion.shape[1], token_capacity),
    )


def allocate_batch(*, tokens: int, lanes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens, positions, token slots and lane records of a launch."""
    i64 = torch.int64
    return (
        entries.allocate((1, tokens), i64),
        entries.allocate((1, tokens), i64),
        entries.allocate((tokens,), i64),
        entries.allocate((lanes, ops.LANE_FIELDS), i64),
    )


def contiguous(tensor: Tensor) -> Tensor:
    """The tensor itself; an entry reads memory as it lies, and a copy would not be the recorded tensor."""
    assert tensor.is_contiguous(), f"an operator got a tensor of {tuple(tensor.shape)} with strides {tensor.stride()}"
    return tensor
