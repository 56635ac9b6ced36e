"""State maintenance of one slot: admission, restoring from and freezing into a snapshot row, reset.

A command is checked whole before the first byte changes; a rejected one leaves its completion record alone behind.
Copies are exact. What has to be checked is small, so every program of a launch checks it for itself and the work is
divided; the field that the check reads is written by a kernel of its own, after all have read it.
"""

import torch
import triton
import triton.language as tl

from ignition.kernels.triton.fields import (
    BIAS_COUNT,
    COMPLETION_EPOCH,
    COMPLETION_FIELDS,
    COMPLETION_ROW,
    CONSUMED,
    EPOCH,
    FAMILY_INITIALIZE,
    FAMILY_RESET,
    FAMILY_RESTORE,
    FAMILY_SNAPSHOT,
    PENDING,
    REQUEST_FIELDS,
    REQUEST_PARAMETERS,
    STATE_CONSUMED,
    STATE_EPOCH,
    STATE_PAGE,
    STATE_ROW,
    STATE_SLOT,
    STATUS_LIVE,
    STATUS_REJECTED,
)
from ignition.kernels.triton.records import holds_epoch, write_record

COPY_BLOCK = 4096
BLOCK = tl.constexpr(1024)


@triton.jit
def any_outside(tokens, count, V):
    """Whether any of the tokens is no id of the vocabulary."""
    wrong = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        token = tl.load(tokens + i, mask=i < count, other=0)
        wrong |= ((token < 0) | (token >= V)).to(tl.int32)
    return tl.max(wrong, 0) > 0


@triton.jit
def admit(
    command, fields, parameters, prompt, bias_tokens, bias_values, request_fields, request_parameters, histogram,
    request_bias_tokens, request_bias_values, frame, completion, accepted, C, V, bias_max, context, record_stride,
    LENGTH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Checks the admission, sets the request, and says in `accepted` whether its prompt is to be counted."""
    slot, prompt_count = tl.load(command), tl.load(command + 1)
    bias_count = tl.load(fields + BIAS_COUNT)
    valid = (slot >= 0) & (slot < C) & (tl.load(fields + EPOCH) != 0)
    valid = valid & (prompt_count >= 0) & (prompt_count <= context) & (bias_count >= 0) & (bias_count <= bias_max)
    # Counts out of range are not followed.
    outside = any_outside(prompt, tl.where(valid, prompt_count, 0), V)
    valid = valid & (outside == 0) & (any_outside(bias_tokens, tl.where(valid, bias_count, 0), V) == 0)
    tl.store(accepted, valid.to(tl.int64))
    i = tl.arange(0, BLOCK)
    if valid:
        tl.store(
            request_fields + slot * REQUEST_FIELDS + i,
            tl.load(fields + i, mask=i < REQUEST_FIELDS),
            mask=i < REQUEST_FIELDS,
        )
        own = request_parameters + slot * REQUEST_PARAMETERS
        tl.store(own + i, tl.load(parameters + i, mask=i < REQUEST_PARAMETERS), mask=i < REQUEST_PARAMETERS)
        for start in range(0, bias_count, BLOCK):
            at = start + i
            mask = at < bias_count
            tl.store(request_bias_tokens + slot * bias_max + at, tl.load(bias_tokens + at, mask=mask), mask=mask)
            tl.store(request_bias_values + slot * bias_max + at, tl.load(bias_values + at, mask=mask), mask=mask)
    record = completion + tl.load(frame) * record_stride
    status = tl.where(valid, STATUS_LIVE, STATUS_REJECTED)
    write_record(record, LENGTH, WIDE, slot, status, FAMILY_INITIALIZE, fields, valid)


@triton.jit
def clear_counts(command, histogram, accepted, V):
    """Empties a part of the slot's histogram."""
    v = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(histogram + tl.load(command) * V + v, 0, mask=(v < V) & (tl.load(accepted) != 0))


@triton.jit
def count_prompt(command, prompt, histogram, accepted, V):
    """Counts a part of the prompt."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (i < tl.load(command + 1)) & (tl.load(accepted) != 0)
    token = tl.load(prompt + i, mask=mask, other=0)
    tl.atomic_add(histogram + tl.load(command) * V + token, 1, mask=mask)


@triton.jit
def transfers(
    command, request_fields, rows, C, row_stride, rows_per_slot, consumed_offset, page_tokens, RESTORES: tl.constexpr
):
    """Whether a transfer's command fits its slot and its row. The stride and offset count i64 elements."""
    slot, consumed = tl.load(command + STATE_SLOT), tl.load(command + STATE_CONSUMED)
    row, page = tl.load(command + STATE_ROW), tl.load(command + STATE_PAGE)
    done = (row > C * rows_per_slot) & (consumed > 0) & ((consumed % page_tokens != 0) == (page >= 0))
    done = done & holds_epoch(request_fields, C, slot, tl.load(command + STATE_EPOCH))
    fields = request_fields + slot * REQUEST_FIELDS
    has = tl.load(fields + CONSUMED, mask=done, other=-1)
    if RESTORES:
        frozen = tl.load(rows + row * row_stride + consumed_offset, mask=done, other=-1)
        done = done & (has == 0) & (tl.load(fields + PENDING, mask=done, other=0) < 0) & (frozen == consumed)
    else:
        done = done & (has == consumed)
    return done


@triton.jit
def copy_state(
    command, request_fields, rows, pages, C, hidden_words, row_stride, rows_per_slot, consumed_offset, hidden_offset,
    partial_offset, page_stride, page_tokens, RESTORES: tl.constexpr, COPY: tl.constexpr,
):  # fmt: skip
    """A part of the hidden vector and of the partial page, in words of 4 bytes; sizes and offsets are words too."""
    words = rows.to(tl.pointer_type(tl.int64))
    done = transfers(
        command, request_fields, words, C, row_stride // 2, rows_per_slot, consumed_offset // 2, page_tokens, RESTORES
    )  # fmt: skip
    i = (tl.program_id(0) * COPY + tl.arange(0, COPY)).to(tl.int64)
    frozen = rows + tl.load(command + STATE_ROW) * row_stride
    live = rows + (1 + tl.load(command + STATE_SLOT) * rows_per_slot) * row_stride
    page = tl.load(command + STATE_PAGE)
    tail = pages + page * page_stride + i
    hidden = done & (i < hidden_words)
    partial = done & (page >= 0) & (i < page_stride)
    if RESTORES:
        tl.store(live + hidden_offset + i, tl.load(frozen + hidden_offset + i, mask=hidden), mask=hidden)
        tl.store(tail, tl.load(frozen + partial_offset + i, mask=partial), mask=partial)
    else:
        tl.store(frozen + hidden_offset + i, tl.load(live + hidden_offset + i, mask=hidden), mask=hidden)
        tl.store(frozen + partial_offset + i, tl.load(tail, mask=partial), mask=partial)


@triton.jit
def finish_transfer(
    command, request_fields, rows, frame, completion, C, row_stride, rows_per_slot, consumed_offset, page_tokens,
    record_stride, RESTORES: tl.constexpr, LENGTH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Writes the consumed count where the copies went, and the record. The stride and offset count i64 elements."""
    done = transfers(
        command, request_fields, rows, C, row_stride, rows_per_slot, consumed_offset, page_tokens, RESTORES
    )  # fmt: skip
    slot, row = tl.load(command + STATE_SLOT), tl.load(command + STATE_ROW)
    consumed = tl.load(command + STATE_CONSUMED)
    fields = request_fields + slot * REQUEST_FIELDS
    sized = (row > C * rows_per_slot) & (consumed > 0)
    sized = sized & ((consumed % page_tokens != 0) == (tl.load(command + STATE_PAGE) >= 0))
    known = sized & holds_epoch(request_fields, C, slot, tl.load(command + STATE_EPOCH))
    if done:
        if RESTORES:
            tl.store(fields + CONSUMED, consumed)
        else:
            tl.store(rows + row * row_stride + consumed_offset, consumed)
    tl.debug_barrier()
    record = completion + tl.load(frame) * record_stride
    family: tl.constexpr = FAMILY_RESTORE if RESTORES else FAMILY_SNAPSHOT
    status = tl.where(done, STATUS_LIVE, STATUS_REJECTED)
    write_record(record, LENGTH, WIDE, slot, status, family, fields, known)
    tl.store(record + COMPLETION_ROW, row)


@triton.jit
def empty_slot(command, request_fields, frame, completion, C, record_stride, LENGTH: tl.constexpr, WIDE: tl.constexpr):
    """Every field zero, PENDING -1."""
    slot, epoch = tl.load(command + STATE_SLOT), tl.load(command + STATE_EPOCH)
    held = holds_epoch(request_fields, C, slot, epoch)
    fields = request_fields + slot * REQUEST_FIELDS
    i = tl.arange(0, REQUEST_FIELDS)
    tl.debug_barrier()
    tl.store(fields + i, tl.where(i == PENDING, -1, 0).to(tl.int64), mask=held & (i >= 0))
    tl.debug_barrier()
    record = completion + tl.load(frame) * record_stride
    status = tl.where(held, STATUS_LIVE, STATUS_REJECTED)
    write_record(record, LENGTH, WIDE, slot, status, FAMILY_RESET, fields, held)
    tl.store(record + COMPLETION_EPOCH, epoch)


def record_sizes(token_capacity: int) -> dict[str, int]:
    """A record's length, and the width that a program writes it with."""
    length = COMPLETION_FIELDS.value + token_capacity
    return {"LENGTH": length, "WIDE": triton.next_power_of_2(length)}


def initialize(
    command: torch.Tensor,
    fields: torch.Tensor,
    parameters: torch.Tensor,
    prompt: torch.Tensor,
    bias_tokens: torch.Tensor,
    bias_values: torch.Tensor,
    request_fields: torch.Tensor,
    request_parameters: torch.Tensor,
    histogram: torch.Tensor,
    request_bias_tokens: torch.Tensor,
    request_bias_values: torch.Tensor,
    frame: torch.Tensor,
    completion: torch.Tensor,
    context_tokens: int,
    token_capacity: int,
) -> None:
    """Admission: set the request's fields, parameters and biases, and rebuild its histogram from the prompt."""
    slots, vocabulary = histogram.shape
    accepted = command.new_empty((1,))
    admit[(1,)](
        *(command, fields, parameters, prompt, bias_tokens, bias_values, request_fields, request_parameters),
        *(histogram, request_bias_tokens, request_bias_values, frame, completion, accepted, slots, vocabulary),
        *(request_bias_tokens.shape[1], context_tokens, completion.shape[1] * completion.shape[2]),
        **record_sizes(token_capacity),
    )
    clear_counts[(triton.cdiv(vocabulary, BLOCK.value),)](command, histogram, accepted, vocabulary)
    count_prompt[(triton.cdiv(context_tokens, BLOCK.value),)](command, prompt, histogram, accepted, vocabulary)


def restore(*arguments: torch.Tensor | int) -> None:
    """Copy a snapshot row into a slot that has consumed nothing; the arguments are `transfer`'s."""
    transfer(True, *arguments)  # type: ignore[arg-type]


def snapshot(*arguments: torch.Tensor | int) -> None:
    """Freeze a slot's consumed state into a row; the arguments are `transfer`'s."""
    transfer(False, *arguments)  # type: ignore[arg-type]


def transfer(
    restores: bool,
    command: torch.Tensor,
    request_fields: torch.Tensor,
    rows: torch.Tensor,
    pages: torch.Tensor,
    frame: torch.Tensor,
    completion: torch.Tensor,
    hidden: int,
    row_stride: int,
    rows_per_slot: int,
    consumed_offset: int,
    hidden_offset: int,
    partial_offset: int,
    page_stride: int,
    page_tokens: int,
    token_capacity: int,
) -> None:
    """A copy between a slot and a row: the hidden vector and the partial page, then the consumed count."""
    assert hidden % 2 == 0, "a hidden vector is copied in words of 4 bytes"
    slots = request_fields.shape[0]
    longest = max(hidden // 2, page_stride // 4)
    copy_state[(triton.cdiv(longest, COPY_BLOCK),)](
        *(command, request_fields, rows.view(torch.int32), pages.view(torch.int32), slots, hidden // 2),
        *(row_stride // 4, rows_per_slot, consumed_offset // 4, hidden_offset // 4, partial_offset // 4),
        *(page_stride // 4, page_tokens),
        **{"RESTORES": restores, "COPY": COPY_BLOCK},
    )
    finish_transfer[(1,)](
        *(command, request_fields, rows.view(torch.int64), frame, completion, slots, row_stride // 8, rows_per_slot),
        *(consumed_offset // 8, page_tokens, completion.shape[1] * completion.shape[2]),
        **{"RESTORES": restores, **record_sizes(token_capacity), "num_warps": 1},
    )


def reset(
    command: torch.Tensor,
    request_fields: torch.Tensor,
    frame: torch.Tensor,
    completion: torch.Tensor,
    token_capacity: int,
) -> None:
    """Empty a slot."""
    empty_slot[(1,)](
        *(command, request_fields, frame, completion, request_fields.shape[0]),
        completion.shape[1] * completion.shape[2],
        **{**record_sizes(token_capacity), "num_warps": 1},
    )
