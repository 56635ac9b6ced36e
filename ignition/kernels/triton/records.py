"""Request fields and completion records, as kernels address them: records.h of the host."""

import triton
import triton.language as tl

from ignition.kernels.triton.fields import (
    COMPLETION_CONSUMED,
    COMPLETION_COUNTER,
    COMPLETION_EPOCH,
    COMPLETION_FAMILY,
    COMPLETION_FINISHED,
    COMPLETION_GENERATED,
    COMPLETION_LOGPROB_COUNT,
    COMPLETION_PENDING,
    COMPLETION_SLOT,
    COMPLETION_STATUS,
    CONSUMED,
    COUNTER,
    EPOCH,
    FINISHED,
    GENERATED,
    PENDING,
    REQUEST_FIELDS,
)


@triton.jit
def holds_epoch(request_fields, C, slot, epoch):
    """Whether the slot exists and holds the epoch; epoch 0 is no epoch."""
    exists = (slot >= 0) & (slot < C)
    held = tl.load(request_fields + slot * REQUEST_FIELDS + EPOCH, mask=exists, other=0)
    return exists & (epoch != 0) & (held == epoch)


@triton.jit
def write_record(record, LENGTH: tl.constexpr, WIDE: tl.constexpr, slot, status, family, fields, known):
    """Fills a record from a slot's fields where they are known; no tokens yet."""
    i = tl.arange(0, WIDE)
    value = tl.zeros((WIDE,), tl.int64)
    value = tl.where(i == COMPLETION_SLOT, slot, value)
    value = tl.where(i == COMPLETION_STATUS, status, value)
    value = tl.where(i == COMPLETION_FAMILY, family, value)
    value = tl.where(i == COMPLETION_LOGPROB_COUNT, -1, value)
    value = tl.where(i == COMPLETION_EPOCH, tl.load(fields + EPOCH, mask=known, other=0), value)
    value = tl.where(i == COMPLETION_CONSUMED, tl.load(fields + CONSUMED, mask=known, other=0), value)
    value = tl.where(i == COMPLETION_GENERATED, tl.load(fields + GENERATED, mask=known, other=0), value)
    value = tl.where(i == COMPLETION_FINISHED, tl.load(fields + FINISHED, mask=known, other=0), value)
    value = tl.where(i == COMPLETION_PENDING, tl.load(fields + PENDING, mask=known, other=-1), value)
    value = tl.where(i == COMPLETION_COUNTER, tl.load(fields + COUNTER, mask=known, other=0), value)
    tl.store(record + i, value, mask=i < LENGTH)
    # What is written next into the record may be another thread's.
    tl.debug_barrier()
