"""Attention of a chunk of one request's prompt: tiles of queries pass over its pages on the matrix units.

A tile holds some tokens' query heads of one key head, so that a block of keys and values serves all of them. Blocks
that every row of a tile sees whole need no mask; where tiles are too few for the device, a tile's history is parted.
"""

import triton
import triton.language as tl

from ignition.kernels.triton.attention_parts import add_blocks, first_seen, part_of
from ignition.kernels.triton.launch import wait_for_previous
from ignition.kernels.triton.pages import PAGE_TOKENS

PART_BLOCKS_MIN = tl.constexpr(8)
"""A shorter part costs more to combine than it saves."""

BLOCKS_END = tl.constexpr(1 << 30)


@triton.jit
def rows_of(
    i, tile, key_head, part, token_slots, positions, count, window, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Rows `i` of a tile: the tile's slot, their places among all tokens' heads, whether they exist, which positions
    [begin, end) they see in this part (none: 0, 0), and how many parts they have.
    """
    group: tl.constexpr = HEADS // KEY_HEADS
    t = tile * BLOCK_TOKENS + i // group
    present = (i < BLOCK_TOKENS * group) & (t < count)
    slot = tl.load(token_slots + tile * BLOCK_TOKENS)
    live = present & (tl.load(token_slots + t, mask=present, other=-1) == slot) & (slot >= 0)
    position = tl.load(positions + t, mask=live, other=0).to(tl.int32)
    begin_block, end_block, part_count = part_of(position, window, part, SPLITS, PART_BLOCKS_MIN)
    begin = tl.maximum(first_seen(position, window), begin_block * PAGE_TOKENS)
    end = tl.minimum(position + 1, end_block * PAGE_TOKENS)
    sees = live & (begin < end)
    place = t * HEADS + key_head * group + i % group
    return slot, place, present, tl.where(sees, begin, 0), tl.where(sees, end, 0), part_count


@triton.jit
def blocks_of(begin, end):
    """Of a tile's rows: the positions [lowest, highest) that any sees, their blocks [first, last), and those of them
    that all see whole.
    """
    lowest, highest = tl.min(tl.where(end > 0, begin, BLOCKS_END), 0), tl.max(end, 0)
    last = tl.cdiv(highest, PAGE_TOKENS)
    first = tl.minimum(lowest // PAGE_TOKENS, last)
    whole_first = tl.cdiv(tl.max(begin, 0), PAGE_TOKENS)
    whole_last = tl.minimum(tl.min(tl.where(end > 0, end // PAGE_TOKENS, BLOCKS_END), 0), last)
    return lowest, highest, first, last, whole_first, whole_last


@triton.jit
def attend_tile(
    q, token_slots, positions, page_table, pages, y, parts, sums, count, table_width, page_stride, key_offset,
    value_offset, scale, window, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, D: tl.constexpr, WIDE_D: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr, BLOCK_ROWS: tl.constexpr, SPLITS: tl.constexpr, WINDOWED: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """BLOCK_TOKENS queries of one request for the heads of one key head, and a part of their history.

    A row is a head of a token; keys and values lie in their pages already.
    """
    wait_for_previous()
    # The last tiles see the most; they begin first.
    tile, key_head, part = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i, d = tl.arange(0, BLOCK_ROWS), tl.arange(0, WIDE_D)
    slot, place, present, begin, end, part_count = rows_of(
        i, tile, key_head, part, token_slots, positions, count, window, HEADS, KEY_HEADS, BLOCK_TOKENS, SPLITS
    )  # fmt: skip
    lowest, highest, first, last, whole_first, whole_last = blocks_of(begin, end)
    if (part > 0) & (highest == 0):
        return
    at, mask = place[:, None] * D + d[None, :], present[:, None] & (d < D)[None, :]
    query = tl.load(q + at, mask=mask, other=0)
    pages += key_head * PAGE_TOKENS * D
    acc = tl.zeros((BLOCK_ROWS, WIDE_D), tl.float32)
    maximum = tl.full((BLOCK_ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_ROWS,), tl.float32)
    if WINDOWED or SPLITS > 1:
        acc, maximum, total = add_blocks(
            query, acc, maximum, total, pages, page_table, slot, table_width, page_stride, key_offset, value_offset,
            first, tl.minimum(whole_first, last), begin, end, lowest, highest, scale, D, WIDE_D, True, STAGES,
        )  # fmt: skip
    acc, maximum, total = add_blocks(
        query, acc, maximum, total, pages, page_table, slot, table_width, page_stride, key_offset, value_offset,
        whole_first, whole_last, begin, end, lowest, highest, scale, D, WIDE_D, False, STAGES,
    )  # fmt: skip
    acc, maximum, total = add_blocks(
        query, acc, maximum, total, pages, page_table, slot, table_width, page_stride, key_offset, value_offset,
        tl.maximum(whole_first, whole_last), last, begin, end, lowest, highest, scale, D, WIDE_D, True, STAGES,
    )  # fmt: skip
    # Rows that see nothing here may hold anything.
    sees = end > 0
    if part == 0:
        result = tl.where(sees[:, None], acc / tl.where(sees, total, 1)[:, None], 0)
        tl.store(y + at, result.to(tl.bfloat16), mask=mask & (part_count == 1)[:, None])
    if SPLITS > 1:
        parted = sees & (part_count > 1)
        place = place * SPLITS + part
        tl.store(parts + place[:, None] * D + d[None, :], acc, mask=mask & parted[:, None])
        tl.store(sums + place * 2, maximum, mask=parted)
        tl.store(sums + place * 2 + 1, total, mask=parted)
