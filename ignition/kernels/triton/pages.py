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
def rotate_and_write_tile(
    qkv, cosines, sines, q, token_slots, positions, page_table, pages, count, table_width, page_stride, key_offset,
    value_offset, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, D: tl.constexpr, WIDE_HALF: tl.constexpr,
    TOKENS: tl.constexpr,
):  # fmt: skip
    """One head of some tokens: a query is rotated to `q`, a key is rotated into its page, a value written."""
    wait_for_previous()
    head = tl.program_id(1)
    t, d = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS), tl.arange(0, WIDE_HALF)[None, :]
    half: tl.constexpr = D // 2
    mask = (t < count)[:, None] & (d < half)
    at = qkv + (t * (HEADS + 2 * KEY_HEADS) + head)[:, None] * D + d
    left, right = tl.load(at, mask=mask, other=0), tl.load(at + half, mask=mask, other=0)
    if head < HEADS + KEY_HEADS:
        angle = t[:, None] * D + d
        cosine = tl.load(cosines + angle, mask=mask, other=0).to(tl.float32)
        sine = tl.load(sines + angle, mask=mask, other=0).to(tl.float32)
        a, b = left.to(tl.float32), right.to(tl.float32)
        left, right = (a * cosine - b * sine).to(tl.bfloat16), (b * cosine + a * sine).to(tl.bfloat16)
    if head < HEADS:
        to = q + (t * HEADS + head)[:, None] * D + d
    else:
        slot = tl.load(token_slots + t, mask=t < count, other=-1)
        position = tl.load(positions + t, mask=slot >= 0, other=0)
        page = page_of(page_table, slot, position // PAGE_TOKENS, tl.where(slot >= 0, table_width, 0))
        key_head = (head - HEADS) % KEY_HEADS
        offset = tl.where(head < HEADS + KEY_HEADS, key_offset, value_offset)
        place = page.to(tl.int64) * page_stride + (key_head * PAGE_TOKENS + position % PAGE_TOKENS) * D
        to = pages + offset + place[:, None] + d
        mask = mask & (page >= 0)[:, None]
    tl.store(to, left, mask=mask)
    tl.store(to + half, right, mask=mask)


def rotate_and_write(
    qkv: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    token_slots: torch.Tensor,
    positions: torch.Tensor,
    page_table: torch.Tensor,
    place: Place,
    heads: int,
    key_heads: int,
) -> torch.Tensor:
    """The rotated query bf16[T, Hq, D] of joined q, k, v bf16[..., T, (Hq + 2 Hk) D]; the rest goes to its pages."""
    count, width, tokens = token_slots.numel(), qkv.shape[-1] // (heads + 2 * key_heads), 16
    query = torch.empty((count, heads, width), dtype=qkv.dtype, device=qkv.device)
    rotate_and_write_tile[(triton.cdiv(count, tokens), heads + 2 * key_heads)](
        *(qkv, cosines, sines, query, token_slots, positions, page_table, place.pages, count, page_table.shape[1]),
        *place[1:],
        **{"HEADS": heads, "KEY_HEADS": key_heads, "D": width, "WIDE_HALF": triton.next_power_of_2(width // 2)},
        **{"TOKENS": tokens, "num_warps": 4, **dependent()},
    )
    return query


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
