"""What a launch begins with and commits: which lanes are live, the tokens they consume, their final hidden vectors.

Begin kernels decide each lane's status once; every later kernel of the launch obeys the lane records, and may read them
and the tokens' slots and positions before its own predecessor has ended: a begin kernel does not let the next one start
early. Commit kernels change live lanes alone.
"""

import torch
import triton
import triton.language as tl

from ignition.kernels.triton.fields import (
    CONSUMED,
    FINISH_NONE,
    FINISHED,
    LANE_FIELDS,
    LANE_MASKED,
    LANE_SAMPLE,
    LANE_SLOT,
    LANE_STATUS,
    PENDING,
    PREFILL_CONSUMED,
    PREFILL_COUNT,
    PREFILL_EPOCH,
    PREFILL_MASKED,
    PREFILL_SAMPLE,
    PREFILL_SLOT,
    REQUEST_FIELDS,
    STATUS_INACTIVE,
    STATUS_LIVE,
    STATUS_REJECTED,
)
from ignition.kernels.triton.launch import dependent, wait_for_previous
from ignition.kernels.triton.records import holds_epoch

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Tokens and positions i64[1, T], token_slots i64[T], lanes i64[B, 4]."""


@triton.jit
def status_of(request_fields, C, slot, epoch, ready):
    """The status of a launch that asks for a slot at an epoch; `ready`: what else the slot's fields must allow."""
    held = holds_epoch(request_fields, C, slot, epoch)
    finished = tl.load(request_fields + slot * REQUEST_FIELDS + FINISHED, mask=held, other=0) != FINISH_NONE
    status = tl.where(ready, STATUS_LIVE, STATUS_REJECTED)
    status = tl.where(finished, STATUS_INACTIVE, status)
    status = tl.where(held, status, STATUS_REJECTED)
    return tl.where(slot == -1, STATUS_INACTIVE, status).to(tl.int64)


@triton.jit
def write_lane(lane, slot, status, sample, masked):
    """A lane's record."""
    tl.store(lane + LANE_SLOT, slot)
    tl.store(lane + LANE_STATUS, status)
    tl.store(lane + LANE_SAMPLE, tl.where(status == STATUS_LIVE, sample, 0))
    tl.store(lane + LANE_MASKED, masked)


@triton.jit
def field(request_fields, C, slot, which, other):
    """A field of a slot, `other` where the slot does not exist."""
    return tl.load(request_fields + slot * REQUEST_FIELDS + which, mask=(slot >= 0) & (slot < C), other=other)


@triton.jit
def begin_decode_lane(
    lane_slots, lane_epochs, lane_masked, request_fields, tokens, positions, token_slots, lanes, C, V, context
):  # fmt: skip
    """One lane."""
    b = tl.program_id(0)
    slot = tl.load(lane_slots + b)
    pending, consumed = field(request_fields, C, slot, PENDING, -1), field(request_fields, C, slot, CONSUMED, 0)
    ready = (pending >= 0) & (pending < V) & (consumed < context)
    status = status_of(request_fields, C, slot, tl.load(lane_epochs + b), ready)
    live = status == STATUS_LIVE
    tl.store(tokens + b, tl.where(live, pending, 0))
    tl.store(positions + b, tl.where(live, consumed, 0))
    tl.store(token_slots + b, tl.where(live, slot, -1))
    write_lane(lanes + b * LANE_FIELDS, slot, status, 1, tl.load(lane_masked + b))


@triton.jit
def begin_chunk(
    command, prefill_tokens, request_fields, tokens, positions, token_slots, lanes, T, C, V, context,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The whole chunk in one program, since one bad token rejects it."""
    slot, consumed = tl.load(command + PREFILL_SLOT), tl.load(command + PREFILL_CONSUMED)
    count = tl.load(command + PREFILL_COUNT)
    possible = (count >= 1) & (count <= T) & (consumed <= context - count)
    wrong = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, T, BLOCK):
        t = start + tl.arange(0, BLOCK)
        token = tl.load(prefill_tokens + t, mask=possible & (t < count), other=0)
        wrong |= ((token < 0) | (token >= V)).to(tl.int32)
    ready = possible & (tl.max(wrong, 0) == 0)
    ready = ready & (field(request_fields, C, slot, CONSUMED, 0) == consumed)
    ready = ready & (field(request_fields, C, slot, PENDING, -1) < 0)
    status = status_of(request_fields, C, slot, tl.load(command + PREFILL_EPOCH), ready)
    live = tl.where(status == STATUS_LIVE, count, 0)
    for start in range(0, T, BLOCK):
        t = start + tl.arange(0, BLOCK)
        tl.store(tokens + t, tl.load(prefill_tokens + t, mask=t < live, other=0), mask=t < T)
        tl.store(positions + t, tl.where(t < live, consumed + t, 0), mask=t < T)
        tl.store(token_slots + t, tl.where(t < live, slot, -1), mask=t < T)
    write_lane(lanes, slot, status, tl.load(command + PREFILL_SAMPLE), tl.load(command + PREFILL_MASKED))


@triton.jit
def begin_resume_lane(
    lane_slots, lane_epochs, lane_masked, request_fields, rows, hidden, lanes, C, H, row_stride, rows_per_slot,
    hidden_offset, BLOCK: tl.constexpr,
):  # fmt: skip
    """One lane; gathers its saved hidden vector. Strides and offsets count BF16 elements."""
    b = tl.program_id(0)
    slot = tl.load(lane_slots + b)
    ready = (field(request_fields, C, slot, CONSUMED, 0) > 0) & (field(request_fields, C, slot, PENDING, -1) < 0)
    status = status_of(request_fields, C, slot, tl.load(lane_epochs + b), ready)
    row = rows + (1 + slot * rows_per_slot) * row_stride + hidden_offset
    for start in range(0, H, BLOCK):
        h = start + tl.arange(0, BLOCK)
        saved = tl.load(row + h, mask=(status == STATUS_LIVE) & (h < H), other=0)
        tl.store(hidden + b * H + h, saved, mask=h < H)
    write_lane(lanes + b * LANE_FIELDS, slot, status, 1, tl.load(lane_masked + b))


@triton.jit
def commit_lane(
    hidden, command, lanes, request_fields, rows, last, H, row_stride, rows_per_slot, hidden_offset,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Counts a live lane's tokens and saves its final hidden vector; of a chunk that is its last live row."""
    wait_for_previous()
    b = tl.program_id(0)
    slot = tl.load(lanes + b * LANE_FIELDS + LANE_SLOT)
    live = tl.load(lanes + b * LANE_FIELDS + LANE_STATUS) == STATUS_LIVE
    count = tl.load(command + PREFILL_COUNT) if CHUNK else 1
    row = rows + (1 + slot * rows_per_slot) * row_stride + hidden_offset
    own = hidden + (count - 1 if CHUNK else b.to(tl.int64)) * H
    for start in range(0, H, BLOCK):
        h = start + tl.arange(0, BLOCK)
        value = tl.load(own + h, mask=live & (h < H), other=0)
        tl.store(row + h, value, mask=live & (h < H))
        if CHUNK:
            tl.store(last + h, value, mask=h < H)
    if live:
        consumed = request_fields + slot * REQUEST_FIELDS + CONSUMED
        tl.store(consumed, tl.load(consumed) + count)


def new_batch(like: torch.Tensor, tokens: int, lanes: int) -> Batch:
    """Memory for what a launch begins with."""
    one, two, three, four = (
        like.new_empty(shape, dtype=torch.int64) for shape in ((1, tokens), (1, tokens), (tokens,), (lanes, 4))
    )
    return one, two, three, four


def begin_decode(
    lane_slots: torch.Tensor,
    lane_epochs: torch.Tensor,
    lane_masked: torch.Tensor,
    request_fields: torch.Tensor,
    lanes: int,
    vocabulary: int,
    context_tokens: int,
) -> Batch:
    """One pending token a lane."""
    batch = new_batch(lane_slots, lanes, lanes)
    begin_decode_lane[(lanes,)](
        *(lane_slots, lane_epochs, lane_masked, request_fields, *batch),
        *(request_fields.shape[0], vocabulary, context_tokens),
        num_warps=1,
    )
    return batch


def begin_prefill(
    command: torch.Tensor,
    prefill_tokens: torch.Tensor,
    request_fields: torch.Tensor,
    tokens: int,
    vocabulary: int,
    context_tokens: int,
) -> Batch:
    """A chunk of one request's prompt."""
    batch = new_batch(command, tokens, 1)
    begin_chunk[(1,)](
        *(command, prefill_tokens, request_fields, *batch, tokens, request_fields.shape[0], vocabulary, context_tokens),
        BLOCK=1024,
    )
    return batch


def begin_resume(
    lane_slots: torch.Tensor,
    lane_epochs: torch.Tensor,
    lane_masked: torch.Tensor,
    request_fields: torch.Tensor,
    rows: torch.Tensor,
    lanes: int,
    hidden: int,
    row_stride: int,
    rows_per_slot: int,
    hidden_offset: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Saved hidden vectors bf16[B, H] of restored requests, and their lanes."""
    saved = lane_slots.new_empty((lanes, hidden), dtype=torch.bfloat16)
    records = lane_slots.new_empty((lanes, 4), dtype=torch.int64)
    begin_resume_lane[(lanes,)](
        *(lane_slots, lane_epochs, lane_masked, request_fields, rows.view(torch.bfloat16), saved, records),
        *(request_fields.shape[0], hidden, row_stride // 2, rows_per_slot, hidden_offset // 2),
        BLOCK=1024,
    )
    return saved, records


def commit_decode(
    hidden: torch.Tensor,
    lanes: torch.Tensor,
    request_fields: torch.Tensor,
    rows: torch.Tensor,
    row_stride: int,
    rows_per_slot: int,
    hidden_offset: int,
) -> None:
    """Count each live lane's token and save its hidden vector, of hidden bf16[..., B, H]."""
    commit_lane[(lanes.shape[0],)](
        *(hidden, lanes, lanes, request_fields, rows.view(torch.bfloat16), hidden, hidden.shape[-1], row_stride // 2),
        *(rows_per_slot, hidden_offset // 2),
        **{"CHUNK": False, "BLOCK": 1024, **dependent()},
    )


def commit_prefill(
    hidden: torch.Tensor,
    command: torch.Tensor,
    lanes: torch.Tensor,
    request_fields: torch.Tensor,
    rows: torch.Tensor,
    row_stride: int,
    rows_per_slot: int,
    hidden_offset: int,
) -> torch.Tensor:
    """Count the chunk and save its last live row, which is also the result, bf16[1, H]."""
    last = hidden.new_empty((1, hidden.shape[-1]))
    commit_lane[(1,)](
        *(hidden, command, lanes, request_fields, rows.view(torch.bfloat16), last, hidden.shape[-1], row_stride // 2),
        *(rows_per_slot, hidden_offset // 2),
        **{"CHUNK": True, "BLOCK": 1024, **dependent()},
    )
    return last
