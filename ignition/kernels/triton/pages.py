"""Where keys and values lie on CUDA, and how they get there.

A page holds 64 tokens. Its segment for a layer is bf16 [Hk, 64, D], keys and values alike, at `page * page_stride +
offset`. Kernels see the pages as BF16, so strides and offsets count elements there and bytes everywhere else.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ignition.kernels.triton.launch import dependent, wait_for_previous

PAGE_TOKENS = tl.constexpr(64)


class Place(NamedTuple):
    """A layer's keys and values: the pages as BF16, then page stride, key offset and value offset in elements."""

    pages: torch.Tensor
    page_stride: int
    key_offset: int
    value_offset: int

    @classmethod
    def of(cls, pages: torch.Tensor, page_stride: int, key_offset: int, value_offset: int) -> "Place":
        """From bytes."""
        return cls(pages.view(torch.bfloat16), page_stride // 2, key_offset // 2, value_offset // 2)


@triton.jit
def page_of(page_table, slot, block, table_width):
    """The page that holds tokens [64 * block, 64 * block + 64) of a slot, -1 where none is mapped."""
    return tl.load(page_table + slot * table_width + block, mask=block < table_width, other=-1)


@triton.jit
def rotated(x, at, d, cosines, sines, angle_at, mask, D: tl.constexpr):
    """Elements d of a head's vector at `at` after its rotary embedding, which pairs d with d + D / 2."""
    partner = tl.where(d < D // 2, d + D // 2, d - D // 2)
    value = tl.load(x + at + d, mask=mask, other=0).to(tl.float32)
    other = tl.load(x + at + partner, mask=mask, other=0).to(tl.float32)
    cosine = tl.load(cosines + angle_at + d, mask=mask, other=0).to(tl.float32)
    sine = tl.load(sines + angle_at + d, mask=mask, other=0).to(tl.float32)
    return (value * cosine + tl.where(d < D // 2, -other, other) * sine).to(tl.bfloat16)


@triton.jit
def write_rows(
    key, value, token_slots, positions, page_table, pages, table_width, page_stride, key_offset, value_offset,
    HEADS: tl.constexpr, D: tl.constexpr, WIDE_D: tl.constexpr,
):  # fmt: skip
    """One token a program."""
    wait_for_previous()
    t = tl.program_id(0)
    slot, position = tl.load(token_slots + t), tl.load(positions + t)
    if slot >= 0:
        page = page_of(page_table, slot, position // PAGE_TOKENS, table_width)
        if page >= 0:
            d = tl.arange(0, WIDE_D)
            base = pages + page.to(tl.int64) * page_stride + (position % PAGE_TOKENS) * D + d
            for head in range(HEADS):
                at = (t * HEADS + head) * D + d
                to = base + head * PAGE_TOKENS * D
                tl.store(to + key_offset, tl.load(key + at, mask=d < D), mask=d < D)
                tl.store(to + value_offset, tl.load(value + at, mask=d < D), mask=d < D)


@triton.jit
def rotate_and_write_rows(
    qkv, cosines, sines, q, token_slots, positions, page_table, pages, table_width, page_stride, key_offset,
    value_offset, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, D: tl.constexpr, WIDE_D: tl.constexpr,
):  # fmt: skip
    """One head of one token a program: a query is rotated to `q`, a key is rotated into its page, a value written."""
    wait_for_previous()
    t, head = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, WIDE_D)
    at = (t.to(tl.int64) * (HEADS + 2 * KEY_HEADS) + head) * D
    if head < HEADS:
        vector = rotated(qkv, at, d, cosines, sines, t * D, d < D, D)
        tl.store(q + (t.to(tl.int64) * HEADS + head) * D + d, vector, mask=d < D)
    else:
        slot, position = tl.load(token_slots + t), tl.load(positions + t)
        page = page_of(page_table, slot, position // PAGE_TOKENS, tl.where(slot >= 0, table_width, 0))
        if page >= 0:
            key_head = (head - HEADS) % KEY_HEADS
            to = pages + page.to(tl.int64) * page_stride + (key_head * PAGE_TOKENS + position % PAGE_TOKENS) * D + d
            if head < HEADS + KEY_HEADS:
                tl.store(to + key_offset, rotated(qkv, at, d, cosines, sines, t * D, d < D, D), mask=d < D)
            else:
                tl.store(to + value_offset, tl.load(qkv + at + d, mask=d < D), mask=d < D)


def kv_write(
    key: torch.Tensor,
    value: torch.Tensor,
    token_slots: torch.Tensor,
    positions: torch.Tensor,
    page_table: torch.Tensor,
    pages: torch.Tensor,
    page_stride: int,
    key_offset: int,
    value_offset: int,
) -> None:
    """Write key and value bf16[T, Hk, D] to the pages of each row's slot; rows without one write nothing."""
    count, heads, width = key.shape
    place = Place.of(pages, page_stride, key_offset, value_offset)
    write_rows[(count,)](
        *(key, value, token_slots, positions, page_table, place.pages, page_table.shape[1], *place[1:]),
        **{"HEADS": heads, "D": width, "WIDE_D": triton.next_power_of_2(width), "num_warps": 1, **dependent()},
    )
