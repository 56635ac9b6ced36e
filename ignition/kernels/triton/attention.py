"""Paged causal attention. Page tables, positions and slots are read on the device, so no plan of the host exists.

Few rows are decoded (`attention_rows`). Many rows are one request's chunk (`attention_tiles`). Both divide a history
into parts where programs would be too few for the device, and combine them in order (`attention_parts`).
A row sees positions [max(0, p - window + 1), p] of its slot (window 0: from 0); rows without a slot give zeros.
"""

from dataclasses import dataclass

import torch
import triton

from ignition.kernels.triton.attention_parts import combine_parts
from ignition.kernels.triton.attention_rows import attend_row
from ignition.kernels.triton.attention_tiles import PART_BLOCKS_MIN, attend_tile
from ignition.kernels.triton.launch import dependent
from ignition.kernels.triton.pages import PAGE_TOKENS, Place, rotate_and_write
from ignition.kernels.triton.projection import VECTOR_ROWS_MAX

DECODE_ROWS_MAX = 16
"""More rows than this are one request's, in ascending order of position, padding last."""

PROGRAMS = {"rows": 512, "tiles": 256}
"""About as many programs as an H200 runs at a time: four a multiprocessor that stream, two that multiply."""

SPLITS_MAX = 64

COMBINED_VALUES_A_WARP = 4096
"""What a warp holds in registers. More warps would meet for every sum, which takes longer."""

LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Config:
    """How attention is cut: parts of a history, and a tile's tokens of a chunk."""

    splits: int = 1
    block_tokens: int = 0
    warps: int = 4
    stages: int = 2


Angles = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines bf16[T, D], to rotate by."""


@dataclass(frozen=True)
class Call:
    """What both kinds of attention take; `q` is q, k and v joined where there are angles."""

    q: torch.Tensor
    angles: Angles | None
    token_slots: torch.Tensor
    positions: torch.Tensor
    page_table: torch.Tensor
    place: Place
    heads: int
    key_heads: int
    width: int
    scale: float
    window: int
    context_tokens: int

    def run(self, config: Config | None) -> torch.Tensor:
        """y bf16[T, Hq, D]."""
        count = self.token_slots.numel()
        config = config or candidates(count, self.heads, self.key_heads, self.width, self.context_tokens)[0]
        y = torch.empty((count, self.heads, self.width), dtype=torch.bfloat16, device=self.q.device)
        split = (count, self.heads, config.splits) if config.splits > 1 else (0,)
        parts = torch.empty((*split, self.width), dtype=torch.float32, device=self.q.device)
        sums = torch.empty((*split, 2), dtype=torch.float32, device=self.q.device)
        rows = (self.token_slots, self.positions)
        sizes = {"HEADS": self.heads, "D": self.width, "WIDE_D": triton.next_power_of_2(self.width)}
        cache, results = (*rows, self.page_table, self.place.pages), (y, parts, sums)
        layer = (self.page_table.shape[1], *self.place[1:], self.scale * LOG2_E, self.window)
        options = {
            **{"KEY_HEADS": self.key_heads, "SPLITS": config.splits, "STAGES": config.stages},
            **{"num_warps": config.warps, **dependent()},
        }
        group = self.heads // self.key_heads
        if count <= DECODE_ROWS_MAX:
            attend_row[(count, self.key_heads, config.splits)](
                *(self.q, *(self.angles or (self.q, self.q)), *cache, *results, *layer),
                **{**sizes, "GROUP": max(16, triton.next_power_of_2(group)), "ROTARY": self.angles is not None},
                **options,
            )
            blocks_min = 1
        else:
            tokens, blocks_min = config.block_tokens, PART_BLOCKS_MIN.value
            attend_tile[(triton.cdiv(count, tokens), self.key_heads, config.splits)](
                *(self.q, *cache, *results, count, *layer),
                **{**sizes, "BLOCK_TOKENS": tokens, "BLOCK_ROWS": triton.next_power_of_2(tokens * group)},
                **{"WINDOWED": self.window > 0, **options},
            )
        if config.splits > 1:
            combine_parts[(count, self.heads)](
                *(parts, sums, *rows, y, self.window),
                **{**sizes, "SPLITS": config.splits, "BLOCKS_MIN": blocks_min},
                **{"num_warps": max(1, config.splits * sizes["WIDE_D"] // COMBINED_VALUES_A_WARP), **dependent()},
            )
        return y


def candidates(rows: int, heads: int, key_heads: int, width: int, context_tokens: int) -> list[Config]:
    """Configurations worth racing for a capacity; the first is what runs where none was chosen.

    The number of parts is not raced: it serves the longest context, and a short one has no more parts than blocks.
    """
    blocks = -(-context_tokens // PAGE_TOKENS.value)
    if rows <= DECODE_ROWS_MAX:
        splits = splits_for("rows", rows * key_heads, blocks)
        # Three stages need more shared memory than the kernels around a row on vectors. A multiprocessor divides its
        # memory anew only when it is empty, so nothing would overlap.
        deep = [] if rows <= VECTOR_ROWS_MAX else [(4, 3)]
        return [Config(splits=splits, warps=w, stages=s) for w, s in ((4, 2), (8, 2), (2, 2), *deep)]
    cuts = [(64, 8, 2), (64, 4, 3), (128, 8, 3)] if width <= 128 else [(32, 8, 1), (64, 8, 1)]
    group = heads // key_heads
    return [
        Config(splits_for("tiles", -(-rows // tokens) * key_heads, blocks // PART_BLOCKS_MIN.value), tokens, w, s)
        for tokens, w, s in ((max(1, tile_rows // group), w, s) for tile_rows, w, s in cuts)
    ]


def splits_for(kind: str, programs: int, most: int) -> int:
    """Parts of every history, so that there are enough programs, and no more than `most` by much."""
    wanted = min(PROGRAMS[kind] // programs, most, SPLITS_MAX)
    return 1 << (max(1, wanted) - 1).bit_length()


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
    _, heads, width = query.shape
    place = Place.of(pages, page_stride, key_offset, value_offset)
    rows = (token_slots, positions, page_table, place)
    return Call(query, None, *rows, heads, key_value_heads, width, scale, window, context_tokens).run(config)


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
    width = qkv.shape[-1] // (heads + 2 * key_value_heads)
    place = Place.of(pages, page_stride, key_offset, value_offset)
    rows = (token_slots, positions, page_table, place)
    rest = (*rows, heads, key_value_heads, width, scale, window, context_tokens)
    if token_slots.numel() <= DECODE_ROWS_MAX:
        return Call(qkv, (cosines, sines), *rest).run(config)
    query = rotate_and_write(qkv, cosines, sines, *rows, heads, key_value_heads)
    return Call(query, None, *rest).run(config)
