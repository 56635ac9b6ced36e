"""Fixtures of races: the operands of an operator as a program gives them, and what produces its activations.

Weights are the model's own. Activations are seeded and finite, lie in memory of the trial, and are written anew before
each run, as the operator before it would. Metadata describes live rows at the declared geometry.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ignition.export import core_pb2
from ignition.kernels.ops import LANE_FIELDS

HISTORY_TOKENS = 2048
"""Tokens that a decoded row attends over, where a context is as long."""

CHUNK_HISTORY_TOKENS = 28672
"""Tokens before a chunk of a prompt, where a context is as long: what an agent appends comes after a long history."""


@dataclass(frozen=True)
class Trial:
    """An operator's operands, and the producer of its activations."""

    arguments: tuple[Any, ...]
    produce: Callable[[], object]


def projection(x: torch.Tensor, *rest: Any) -> Callable[[], Trial]:
    """x bf16[..., K], then what belongs to the layer."""
    return activation_first(x, rest)


def vocabulary(
    hidden: torch.Tensor, weight: torch.Tensor, logits: torch.Tensor, lanes: torch.Tensor, *rest: Any
) -> Callable[[], Trial]:
    """hidden bf16[B, H] of lanes that all sample. Logits are the session's: nothing reads them before a launch."""
    records = torch.zeros((lanes.shape[0], LANE_FIELDS), dtype=torch.int64)
    records[:, 0] = torch.arange(lanes.shape[0])
    records[:, 1], records[:, 2] = core_pb2.COMPLETION_STATUS_LIVE, 1
    return activation_first(hidden, (weight, logits, records.to(lanes.device), *rest))


def attention(query: torch.Tensor, *rest: Any) -> Callable[[], Trial]:
    """query bf16[T, Hq, D], then rows, pages, key-value heads and what belongs to the layer."""
    rows, (key_value_heads, page_stride, *layer) = rest[:4], rest[4:]
    live = live_rows(*rows, page_stride=page_stride, context_tokens=layer[-1])
    return activation_first(query, (*live, key_value_heads, page_stride, *layer))


def rotary_attention(qkv: torch.Tensor, *rest: Any) -> Callable[[], Trial]:
    """Joined q, k and v, angles, then rows, pages, heads and what belongs to the layer. It writes to the pages."""
    angles, rows, (heads, key_value_heads, page_stride, *layer) = rest[:2], rest[2:6], rest[6:]
    live = live_rows(*rows, page_stride=page_stride, context_tokens=layer[-1])
    angles = tuple(torch.ones_like(angle) for angle in angles)
    return activation_first(qkv, (*angles, *live, heads, key_value_heads, page_stride, *layer))


def live_rows(
    token_slots: torch.Tensor,
    positions: torch.Tensor,
    page_table: torch.Tensor,
    pages: torch.Tensor,
    *,
    page_stride: int,
    context_tokens: int,
) -> tuple[torch.Tensor, ...]:
    """Slots, positions, a page table and the pages: decoded rows of as many slots, or a chunk of one slot's prompt.

    Logical pages share physical ones, so that histories need no memory.
    """
    count, slots, device = token_slots.numel(), page_table.shape[0], token_slots.device
    decodes, row = count <= slots, torch.arange(count, device=device)
    if decodes:
        position = torch.full_like(row, min(HISTORY_TOKENS, context_tokens) - 1)
    else:
        position = (row + max(0, min(CHUNK_HISTORY_TOKENS, context_tokens - count))).clamp(max=context_tokens - 1)
    table = torch.arange(page_table.numel(), device=device, dtype=torch.int32) % (pages.numel() // page_stride)
    return (
        row if decodes else torch.zeros_like(row),
        position,
        table.view_as(page_table),
        pages,
    )


def activation_first(like: torch.Tensor, rest: tuple[Any, ...]) -> Callable[[], Trial]:
    """A trial whose first operand is an activation shaped like the declared one, which is not kept."""
    shape, dtype, device = like.shape, like.dtype, like.device

    def make() -> Trial:
        generator = torch.Generator(device=device).manual_seed(0)
        source = torch.randn(shape, generator=generator, device=device, dtype=torch.float32).to(dtype)
        activation = torch.empty_like(source)
        return Trial((activation, *rest), lambda: activation.copy_(source))

    return make


Fixture = Callable[..., Callable[[], Trial]]
_FIXTURES: dict[str, Fixture] = {
    "vocabulary": vocabulary,
    "attention": attention,
    "rotary_attention": rotary_attention,
}


def fixture_of(name: str) -> Fixture:
    """The fixture of a tunable, by its name: called with a declared call's arguments, it gives what makes a trial."""
    return _FIXTURES.get(name, projection)
