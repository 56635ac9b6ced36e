"""Paged causal attention. Page tables, positions and slots are read on the device, so no plan of the host exists.

Few rows are decoded: each row's keys are split over programs and the parts combined in order, so a row's bits depend on
its own history and on the number of splits. Many rows are one request's chunk: tiles of queries pass over its pages.
A row sees positions [max(0, p - window + 1), p] of its slot (window 0: from 0); rows without a slot give zeros.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ignition.kernels.triton.launch import dependent, multiply, wait_for_previous
from ignition.kernels.triton.pages import PAGE_TOKENS, Place, page_of, rotate_and_write_rows, rotated

DECODE_ROWS_MAX = 16
"""More rows than this are one request's, in ascending order of position, padding last."""

LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Config:
    """How attention is cut: programs that share a decoded row's keys, or the tokens of a tile of queries."""

    splits: int = 1
    block_tokens: int = 0
    warps: int = 4
    stages: int = 2


@triton.jit
def load_page(pages, page, page_stride, key_offset, value_offset, d, D: tl.constexpr):
    """A head's keys and values of a page [64, D]; nothing of a page that is not mapped. `pages` is at the head."""
    at = pages + page.to(tl.int64) * page_stride + tl.arange(0, PAGE_TOKENS)[:, None] * D + d[None, :]
    mask = (d < D)[None, :] & (page >= 0)
    return tl.load(at + key_offset, mask=mask, other=0), tl.load(at + value_offset, mask=mask, other=0)


@triton.jit
def add_page(q, acc, maximum, total, key, value, page, block, begin, end, scale):
    """Adds a slot's `block`-th page to running results; row i of `q` sees positions [begin[i], end[i])."""
    position = tl.arange(0, PAGE_TOKENS) + block * PAGE_TOKENS
    score = multiply(q, tl.trans(key), tl.zeros((q.shape[0], PAGE_TOKENS), tl.float32)) * scale
    seen = (position[None, :] >= begin[:, None]) & (position[None, :] < end[:, None]) & (page >= 0)
    score = tl.where(seen, score, float("-inf"))
    # A row that has seen nothing yet has no maximum; any number does, for its weights are zero.
    higher = tl.maximum(maximum, tl.max(score, 1))
    base = tl.where(higher == float("-inf"), 0.0, higher)
    weight = tl.exp2(score - base[:, None])
    shrink = tl.exp2(maximum - base)
    # A value past the rows' ends may be anything, NaN included.
    value = tl.where((position < tl.max(end, 0))[:, None], value, 0)
    acc = multiply(weight.to(tl.bfloat16), value, acc * shrink[:, None])
    return acc, higher, total * shrink + tl.sum(weight, 1)


@triton.jit
def first_seen(position, window):
    """The first position that a row sees."""
    return tl.where(window > 0, tl.maximum(position - window + 1, 0), 0)


@triton.jit
def decode_split(
    q, cosines, sines, token_slots, positions, page_table, pages, y, parts, sums, table_width, page_stride,
    key_offset, value_offset, scale, window, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, D: tl.constexpr,
    WIDE_D: tl.constexpr, GROUP: tl.constexpr, SPLITS: tl.constexpr, ROTARY: tl.constexpr,
):  # fmt: skip
    """One row, the query heads of one key head, and one of SPLITS parts of the pages that the row sees.

    With ROTARY, `q` holds q, k and v before their rotary embedding. Then no other kernel of the launch writes pages, so
    the first one is loaded before the kernel before has ended; the row's own key and value take their place in it.
    """
    t, key_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if not ROTARY:
        wait_for_previous()
    slot, position = tl.load(token_slots + t), tl.load(positions + t)
    first = first_seen(position, window)
    last_block = position // PAGE_TOKENS
    each = tl.cdiv(last_block + 1 - first // PAGE_TOKENS, SPLITS)
    begin_block = first // PAGE_TOKENS + split * each
    end_block = tl.where(slot < 0, begin_block, tl.minimum(begin_block + each, last_block + 1))
    pages += key_head * PAGE_TOKENS * D
    d = tl.arange(0, WIDE_D)
    next_page = page_of(page_table, slot, begin_block, tl.where(begin_block < end_block, table_width, 0))
    next_key, next_value = load_page(pages, next_page, page_stride, key_offset, value_offset, d, D)
    if ROTARY:
        wait_for_previous()
    group: tl.constexpr = HEADS // KEY_HEADS
    g = tl.arange(0, GROUP)
    head = key_head * group + g
    live = (g < group)[:, None] & (d < D)[None, :]
    at = t.to(tl.int64) * (HEADS + 2 * KEY_HEADS if ROTARY else HEADS) * D
    if ROTARY:
        query = rotated(q, at + head[:, None] * D, d[None, :], cosines, sines, t * D, live, D)
        own_key = rotated(q, at + (HEADS + key_head) * D, d, cosines, sines, t * D, d < D, D)
        own_value = tl.load(q + at + (HEADS + KEY_HEADS + key_head) * D + d, mask=d < D, other=0)
    else:
        query = tl.load(q + at + head[:, None] * D + d[None, :], mask=live, other=0)
    acc = tl.zeros((GROUP, WIDE_D), tl.float32)
    maximum = tl.full((GROUP,), float("-inf"), tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    every = tl.zeros((GROUP,), tl.int64)
    for block in tl.range(begin_block, end_block):
        page, key, value = next_page, next_key, next_value
        next_page = page_of(page_table, slot, block + 1, tl.where(block + 1 < end_block, table_width, 0))
        next_key, next_value = load_page(pages, next_page, page_stride, key_offset, value_offset, d, D)
        if ROTARY:
            own = (tl.arange(0, PAGE_TOKENS) + block * PAGE_TOKENS == position)[:, None]
            key, value = tl.where(own, own_key[None, :], key), tl.where(own, own_value[None, :], value)
            if (block == last_block) & (page >= 0):
                to = pages + page.to(tl.int64) * page_stride + (position % PAGE_TOKENS) * D + d
                tl.store(to + key_offset, own_key, mask=d < D)
                tl.store(to + value_offset, own_value, mask=d < D)
        acc, maximum, total = add_page(
            query, acc, maximum, total, key, value, page, block, every + first, every + position + 1, scale
        )  # fmt: skip
    if SPLITS == 1:
        value = acc / tl.where(total > 0, total, 1)[:, None]
        tl.store(y + (t * HEADS + head)[:, None] * D + d[None, :], value.to(tl.bfloat16), mask=live)
    else:
        place = (t * HEADS + head) * SPLITS + split
        tl.store(parts + place[:, None] * D + d[None, :], acc, mask=live & (total > 0)[:, None])
        tl.store(sums + place * 2, maximum, mask=g < group)
        tl.store(sums + place * 2 + 1, total, mask=g < group)


@triton.jit
def decode_combine(
    parts, sums, y, D: tl.constexpr, WIDE_D: tl.constexpr, SPLITS: tl.constexpr
):  # fmt: skip
    """Combines the parts of one query head of one row."""
    wait_for_previous()
    row, s, d = tl.program_id(0), tl.arange(0, SPLITS), tl.arange(0, WIDE_D)
    maximum, total = tl.load(sums + (row * SPLITS + s) * 2), tl.load(sums + (row * SPLITS + s) * 2 + 1)
    highest = tl.max(maximum, 0)
    weight = tl.where(total > 0, tl.exp2(maximum - highest), 0)
    mask = (total > 0)[:, None] & (d < D)[None, :]
    part = tl.load(parts + (row * SPLITS + s)[:, None] * D + d[None, :], mask=mask, other=0)
    whole = tl.sum(weight * total, 0)
    value = tl.sum(part * weight[:, None], 0) / tl.where(whole > 0, whole, 1)
    tl.store(y + row * D + d, value.to(tl.bfloat16), mask=d < D)


@triton.jit
def attend_tile(
    q, token_slots, positions, page_table, pages, y, count, table_width, page_stride, key_offset, value_offset, scale,
    window, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, D: tl.constexpr, WIDE_D: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr, BLOCK_ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """BLOCK_TOKENS queries of one request for the heads of one key head; a row is a head of a token."""
    wait_for_previous()
    # The last tiles see the most; they begin first.
    tile, key_head = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)
    group: tl.constexpr = HEADS // KEY_HEADS
    i, d = tl.arange(0, BLOCK_ROWS), tl.arange(0, WIDE_D)
    t = tile * BLOCK_TOKENS + i // group
    present = (i < BLOCK_TOKENS * group) & (t < count)
    at = ((t * HEADS + key_head * group + i % group).to(tl.int64) * D)[:, None] + d[None, :]
    slot = tl.load(token_slots + tile * BLOCK_TOKENS)
    live = present & (tl.load(token_slots + t, mask=present, other=-1) == slot) & (slot >= 0)
    position = tl.load(positions + t, mask=live, other=-1)
    query = tl.load(q + at, mask=live[:, None] & (d < D)[None, :], other=0)
    begin, end = first_seen(position, window), position + 1
    first = tl.min(tl.where(live, begin, 1 << 40), 0) // PAGE_TOKENS
    pages += key_head * PAGE_TOKENS * D
    acc = tl.zeros((BLOCK_ROWS, WIDE_D), tl.float32)
    maximum = tl.full((BLOCK_ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_ROWS,), tl.float32)
    for block in tl.range(first, tl.cdiv(tl.max(end, 0), PAGE_TOKENS), num_stages=STAGES):
        page = page_of(page_table, slot, block, table_width)
        key, value = load_page(pages, page, page_stride, key_offset, value_offset, d, D)
        acc, maximum, total = add_page(query, acc, maximum, total, key, value, page, block, begin, end, scale)
    value = acc / tl.where(total > 0, total, 1)[:, None]
    tl.store(y + at, value.to(tl.bfloat16), mask=present[:, None] & (d < D)[None, :])


def candidates(rows: int, heads: int, key_heads: int, width: int, context_tokens: int) -> list[Config]:
    """Configurations worth racing for a capacity; the first is what runs where none was chosen."""
    if rows > DECODE_ROWS_MAX:
        cuts = [(128, 8, 2), (128, 4, 2), (64, 4, 2), (64, 4, 3)] if width <= 128 else [(64, 8, 1), (32, 8, 1)]
        return [Config(block_tokens=max(1, r // (heads // key_heads)), warps=w, stages=s) for r, w, s in cuts]
    pages = -(-context_tokens // PAGE_TOKENS.value)
    wanted = [splits for splits in (8, 16, 32, 64, 4) if splits == 8 or splits <= pages]
    return [Config(splits=splits, warps=warps) for splits in wanted for warps in ((8, 4) if width <= 64 else (8,))]


def attention(
    query: torch.Tensor,
    token_slots: torch.Tensor,
    positions: torch.Tensor,
    page_table: torch.Tensor,
    pages: torch.Tensor,
    key_value_heads: int,
    page_stride: int,
    key_offset: int,
    value_offset: int,
    scale: float,
    window: int,
    context_tokens: int,
    config: Config | None = None,
) -> torch.Tensor:
    """y bf16[T, Hq, D] of query bf16[T, Hq, D]."""
    count, heads, width = query.shape
    place = Place.of(pages, page_stride, key_offset, value_offset)
    config = config or candidates(count, heads, key_value_heads, width, context_tokens)[0]
    cache = (token_slots, positions, page_table, place)
    if count <= DECODE_ROWS_MAX:
        return decode(query, None, cache, (heads, key_value_heads, width), scale, window, config)
    y = torch.empty_like(query)
    group = heads // key_value_heads
    attend_tile[(triton.cdiv(count, config.block_tokens), key_value_heads)](
        *(query, token_slots, positions, page_table, place.pages, y, count, page_table.shape[1], *place[1:]),
        *(scale * LOG2_E, window),
        **{"HEADS": heads, "KEY_HEADS": key_value_heads, "D": width, "WIDE_D": triton.next_power_of_2(width)},
        **{"BLOCK_TOKENS": config.block_tokens, "BLOCK_ROWS": triton.next_power_of_2(config.block_tokens * group)},
        **{"STAGES": config.stages, "num_warps": config.warps, **dependent()},
    )
    return y


def rotary_attention(
    qkv: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    token_slots: torch.Tensor,
    positions: torch.Tensor,
    page_table: torch.Tensor,
    pages: torch.Tensor,
    heads: int,
    key_value_heads: int,
    page_stride: int,
    key_offset: int,
    value_offset: int,
    scale: float,
    window: int,
    context_tokens: int,
    config: Config | None = None,
) -> torch.Tensor:
    """y bf16[T, Hq, D] of joined q, k, v bf16[..., T, (Hq + 2 Hk) D] and angles bf16[..., T, D], to rotate by."""
    count, width = token_slots.numel(), qkv.shape[-1] // (heads + 2 * key_value_heads)
    place = Place.of(pages, page_stride, key_offset, value_offset)
    if count <= DECODE_ROWS_MAX:
        config = config or candidates(count, heads, key_value_heads, width, context_tokens)[0]
        cache = (token_slots, positions, page_table, place)
        return decode(qkv, (cosines, sines), cache, (heads, key_value_heads, width), scale, window, config)
    query = torch.empty((count, heads, width), dtype=qkv.dtype, device=qkv.device)
    rotate_and_write_rows[(count, heads + 2 * key_value_heads)](
        *(qkv, cosines, sines, query, token_slots, positions, page_table, place.pages, page_table.shape[1], *place[1:]),
        **{"HEADS": heads, "KEY_HEADS": key_value_heads, "D": width, "WIDE_D": triton.next_power_of_2(width)},
        **{"num_warps": 1, **dependent()},
    )
    return attention(
        *(query, token_slots, positions, page_table, pages, key_value_heads, page_stride, key_offset, value_offset),
        *(scale, window, context_tokens, config),
    )


def decode(
    q: torch.Tensor,
    angles: tuple[torch.Tensor, torch.Tensor] | None,
    cache: tuple[torch.Tensor, torch.Tensor, torch.Tensor, Place],
    geometry: tuple[int, int, int],
    scale: float,
    window: int,
    config: Config,
) -> torch.Tensor:
    """Attention of few rows; with angles, `q` is q, k and v before their rotary embedding."""
    token_slots, positions, page_table, place = cache
    heads, key_heads, width = geometry
    count = token_slots.numel()
    y = torch.empty((count, heads, width), dtype=torch.bfloat16, device=q.device)
    parts = torch.empty((count, heads, config.splits, width), dtype=torch.float32, device=q.device)
    sums = torch.empty((count, heads, config.splits, 2), dtype=torch.float32, device=q.device)
    wide = triton.next_power_of_2(width)
    decode_split[(count, key_heads, config.splits)](
        *(q, *(angles or (q, q)), token_slots, positions, page_table, place.pages, y, parts, sums),
        *(page_table.shape[1], *place[1:], scale * LOG2_E, window),
        **{"HEADS": heads, "KEY_HEADS": key_heads, "D": width, "WIDE_D": wide, "SPLITS": config.splits},
        **{"GROUP": max(16, triton.next_power_of_2(heads // key_heads)), "ROTARY": angles is not None},
        **{"num_warps": config.warps, **dependent()},
    )
    if config.splits > 1:
        decode_combine[(count * heads,)](
            *(parts, sums, y),
            **{"D": width, "WIDE_D": wide, "SPLITS": config.splits, "num_warps": 1, **dependent()},
        )
    return y
