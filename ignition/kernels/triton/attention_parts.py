"""What attention's kernels share: a history in parts, blocks of it added to running results, and parts combined.

A block is a page, counted from position 0. Which blocks belong to a part follows from a row's own
position, and blocks are added in order, so a row's bits depend on no other row. Positions are 32-bit numbers here.
"""

import triton
import triton.language as tl

from ignition.kernels.triton.launch import multiply, wait_for_previous
from ignition.kernels.triton.pages import PAGE_TOKENS, page_of


@triton.jit
def first_seen(position, window):
    """The first position that a row sees."""
    return tl.where(window > 0, tl.maximum(position - window + 1, 0), 0)


@triton.jit
def part_of(position, window, part, SPLITS: tl.constexpr, BLOCKS_MIN: tl.constexpr):
    """The blocks [begin, end) of a part of what a row sees, and how many parts have any."""
    first = first_seen(position, window) // PAGE_TOKENS
    blocks = position // PAGE_TOKENS + 1 - first
    each = tl.maximum(tl.cdiv(blocks, SPLITS), BLOCKS_MIN)
    begin = first + part * each
    return begin, tl.minimum(begin + each, first + blocks), tl.cdiv(blocks, each)


@triton.jit
def load_block(
    pages, page, block, page_stride, key_offset, value_offset, begin, end, D: tl.constexpr, WIDE_D: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """A head's keys and values of a block [64, WIDE_D], those at [begin, end) alone where MASKED, and none of a page
    that is not mapped. `pages` is at the head.
    """
    token, d = tl.arange(0, PAGE_TOKENS)[:, None], tl.arange(0, WIDE_D)[None, :]
    at = pages + page.to(tl.int64) * page_stride + token * D + d
    mask = page >= 0
    if D < WIDE_D:
        mask = mask & (d < D)
    if MASKED:
        # Past its rows' ends a page may hold anything, NaN included.
        position = token + block * PAGE_TOKENS
        mask = mask & (position >= begin) & (position < end)
    return tl.load(at + key_offset, mask=mask, other=0), tl.load(at + value_offset, mask=mask, other=0)


@triton.jit
def add_block(q, acc, maximum, total, key, value, block, begin, end, scale, MASKED: tl.constexpr):
    """Adds a block to running results; row i of `q` sees positions [begin[i], end[i]), all of it unless MASKED."""
    score = multiply(q, tl.trans(key), tl.zeros((q.shape[0], PAGE_TOKENS), tl.float32))
    if MASKED:
        position = tl.arange(0, PAGE_TOKENS)[None, :] + block * PAGE_TOKENS
        score = tl.where((position >= begin[:, None]) & (position < end[:, None]), score, float("-inf"))
    higher = tl.maximum(maximum, tl.max(score, 1) * scale)
    base = higher
    if MASKED:
        # A row that has seen nothing yet has no maximum; any number does, for its weights are zero.
        base = tl.where(higher == float("-inf"), 0.0, higher)
    # The same rounding in every loop: a block's bits must not follow from whether its neighbours need a mask.
    weight = tl.math.exp2(tl.math.fma(score, scale, -base[:, None]))
    shrink = tl.math.exp2(maximum - base)
    acc = multiply(weight.to(tl.bfloat16), value, acc * shrink[:, None])
    return acc, higher, tl.math.fma(total, shrink, tl.sum(weight, 1))


@triton.jit
def add_blocks(
    q, acc, maximum, total, pages, page_table, slot, table_width, page_stride, key_offset, value_offset, first, last,
    begin, end, lowest, highest, scale, D: tl.constexpr, WIDE_D: tl.constexpr, MASKED: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Adds blocks [first, last) of a slot as `add_block` does; `lowest` and `highest` bound `begin` and `end`."""
    next_page = page_of(page_table, slot, first, tl.where(first < last, table_width, 0))
    for block in tl.range(first, last, num_stages=STAGES):
        # A page's number is known a turn early: the loads that need it are what is pipelined.
        page = next_page
        next_page = page_of(page_table, slot, block + 1, tl.where(block + 1 < last, table_width, 0))
        key, value = load_block(
            pages, page, block, page_stride, key_offset, value_offset, lowest, highest, D, WIDE_D, MASKED
        )  # fmt: skip
        acc, maximum, total = add_block(q, acc, maximum, total, key, value, block, begin, end, scale, MASKED)
    return acc, maximum, total


@triton.jit
def combine_parts(
    parts, sums, token_slots, positions, y, window, HEADS: tl.constexpr, D: tl.constexpr, WIDE_D: tl.constexpr,
    SPLITS: tl.constexpr, BLOCKS_MIN: tl.constexpr,
):  # fmt: skip
    """Combines the parts of one query head of one row, where there are several.

    How many there are follows from what the launch begins with, so it is known before the kernel before has ended.
    """
    t, head = tl.program_id(0), tl.program_id(1)
    _, _, count = part_of(tl.load(positions + t).to(tl.int32), window, 0, SPLITS, BLOCKS_MIN)
    several = (count > 1) & (tl.load(token_slots + t) >= 0)
    wait_for_previous()
    if several:
        row = t.to(tl.int64) * HEADS + head
        s, d = tl.arange(0, SPLITS), tl.arange(0, WIDE_D)
        at = row * SPLITS + s
        part = tl.load(parts + at[:, None] * D + d[None, :], mask=(s < count)[:, None] & (d < D)[None, :], other=0)
        maximum = tl.load(sums + at * 2, mask=s < count, other=float("-inf"))
        total = tl.load(sums + at * 2 + 1, mask=s < count, other=0)
        weight = tl.math.exp2(maximum - tl.max(maximum, 0))
        value = tl.sum(part * weight[:, None], 0) / tl.sum(weight * total, 0)
        tl.store(y + row * D + d, value.to(tl.bfloat16), mask=d < D)
