"""Attention of decoded rows, each of a request of its own.

A program takes one part of a row's history for the query heads of one key head. It streams keys and values at the speed
of the memory: a block's are loaded while the block before is added.
"""

import triton
import triton.language as tl

from ignition.kernels.triton.attention_parts import add_block, add_blocks, first_seen, load_block, part_of
from ignition.kernels.triton.launch import wait_for_previous
from ignition.kernels.triton.pages import PAGE_TOKENS, page_of, rotated


@triton.jit
def attend_row(
    q, cosines, sines, token_slots, positions, page_table, pages, y, parts, sums, table_width, page_stride,
    key_offset, value_offset, scale, window, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, D: tl.constexpr,
    WIDE_D: tl.constexpr, GROUP: tl.constexpr, SPLITS: tl.constexpr, ROTARY: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One row, the query heads of one key head, and one of SPLITS parts of the pages that the row sees.

    With ROTARY, `q` holds q, k and v before their rotary embedding. Then no other kernel of the launch writes pages, so
    the part's first block is loaded before the kernel before has ended; the row's own key and value join from
    registers, in the part that they end.
    """
    t, key_head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if not ROTARY:
        wait_for_previous()
    slot, position = tl.load(token_slots + t), tl.load(positions + t).to(tl.int32)
    begin_block, end_block, count = part_of(position, window, part, SPLITS, 1)
    end_block = tl.where(slot < 0, begin_block, end_block)
    begin, end = first_seen(position, window), position + (0 if ROTARY else 1)
    pages += key_head * PAGE_TOKENS * D
    page = page_of(page_table, slot, begin_block, tl.where(begin_block < end_block, table_width, 0))
    key, value = load_block(
        pages, page, begin_block, page_stride, key_offset, value_offset, begin, end, D, WIDE_D, True
    )  # fmt: skip
    own_page = page_of(page_table, slot, position // PAGE_TOKENS, tl.where(slot >= 0, table_width, 0))
    if ROTARY:
        wait_for_previous()
    if part >= count:
        return
    group: tl.constexpr = HEADS // KEY_HEADS
    g, d = tl.arange(0, GROUP), tl.arange(0, WIDE_D)
    head = key_head * group + g
    live = (g < group)[:, None] & (d < D)[None, :]
    at = t.to(tl.int64) * (HEADS + 2 * KEY_HEADS if ROTARY else HEADS) * D
    acc = tl.zeros((GROUP, WIDE_D), tl.float32)
    maximum = tl.full((GROUP,), float("-inf"), tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    if ROTARY:
        query = rotated(q, at + head[:, None] * D, d[None, :], cosines, sines, t * D, live, D)
        own_key = rotated(q, at + (HEADS + key_head) * D, d, cosines, sines, t * D, d < D, D)
        own_value = tl.load(q + at + (HEADS + KEY_HEADS + key_head) * D + d, mask=d < D, other=0)
        own = (part == count - 1) & (slot >= 0)
        to = pages + own_page.to(tl.int64) * page_stride + (position % PAGE_TOKENS) * D + d
        tl.store(to + key_offset, own_key, mask=(d < D) & own & (own_page >= 0))
        tl.store(to + value_offset, own_value, mask=(d < D) & own & (own_page >= 0))
        own_score = tl.sum(query.to(tl.float32) * own_key.to(tl.float32)[None, :], 1) * scale
        maximum = tl.where(own, own_score, maximum)
        total = tl.where(own, 1.0, total)
        acc = tl.where(own, own_value.to(tl.float32)[None, :], acc)
    else:
        query = tl.load(q + at + head[:, None] * D + d[None, :], mask=live, other=0)
    begins, ends = tl.full((GROUP,), begin, tl.int32), tl.full((GROUP,), end, tl.int32)
    if begin_block < end_block:
        acc, maximum, total = add_block(
            query, acc, maximum, total, key, value, begin_block, begins, ends, scale, True
        )  # fmt: skip
    acc, maximum, total = add_blocks(
        query, acc, maximum, total, pages, page_table, slot, table_width, page_stride, key_offset, value_offset,
        begin_block + 1, end_block, begins, ends, begin, end, scale, D, WIDE_D, True, STAGES,
    )  # fmt: skip
    row = t.to(tl.int64) * HEADS + head
    if count == 1:
        result = acc / tl.where(total > 0, total, 1)[:, None]
        tl.store(y + row[:, None] * D + d[None, :], result.to(tl.bfloat16), mask=live)
    else:
        place = row * SPLITS + part
        tl.store(parts + place[:, None] * D + d[None, :], acc, mask=live)
        tl.store(sums + place * 2, maximum, mask=g < group)
        tl.store(sums + place * 2 + 1, total, mask=g < group)
