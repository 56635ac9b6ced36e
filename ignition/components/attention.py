"""Paged causal attention, registered as the Transformers attention implementation `flare`.

The canonical attention modules call it with their own projections, rotary embeddings and scaling; it writes keys and
values to the pages of each row's slot and attends over them. The forward has to pass `token_slots` i64[T] and
`token_positions` i64[T] down as keyword arguments.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ignition.kernels import ops

IMPLEMENTATION = "flare"


@dataclass(frozen=True)
class PagedCache:
    """The pages as one layer sees them. Offsets and strides are bytes."""

    page_table: torch.Tensor  # i32[C, pages a context takes]
    pages: torch.Tensor  # u8: every page, one after another.
    page_stride: int
    key_offset: int
    value_offset: int
    context_tokens: int


def attach_cache(attention: nn.Module, cache: PagedCache) -> None:
    """Give a canonical attention module its layer's pages."""
    vars(attention)["flare_cache"] = cache


def paged_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    token_slots: torch.Tensor,
    token_positions: torch.Tensor,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attend; query [1, Hq, T, D], key and value [1, Hk, T, D], result [1, T, Hq, D] in BF16."""
    cache: PagedCache = module.flare_cache  # type: ignore[assignment]
    assert attention_mask is None, "paged attention is causal by itself; the forward may build no mask"
    query, key, value = (tensor[0].transpose(0, 1).contiguous() for tensor in (query, key, value))
    place = (cache.page_stride, cache.key_offset, cache.value_offset)
    ops.kv_write(key, value, token_slots, token_positions, cache.page_table, cache.pages, *place)
    heads = key.shape[1]
    output = ops.attention(
        *(query, token_slots, token_positions, cache.page_table, cache.pages, heads, *place),
        *(scaling, sliding_window or 0, cache.context_tokens),
    )
    return output[None], None


ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, paged_attention)
