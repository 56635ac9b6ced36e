"""The host operators as opaque torch operators, `torch.ops.flare.*`.

A compiled forward sees each as one call with a known output; inside it is one or two entries of operators.h. Tensors
are contiguous. `token_slots` and `positions` are i64[T]; a row whose slot is negative is padding.
"""

import torch

from ignition.kernels.host import entries

# torch.library reads annotations at run time, so they are spelled out.
Tensor = torch.Tensor


@torch.library.custom_op("flare::linear", mutates_args=())
def linear(x: Tensor, weight: Tensor, bias: Tensor | None, out_features: int) -> Tensor:
    """y bf16[..., N] of x bf16[..., K], a packed weight of [N, K] and bias bf16[N]."""
    in_features = x.shape[-1]
    rows = x.numel() // in_features
    y = entries.allocate((*x.shape[:-1], out_features), x.dtype)
    size_bytes = entries.library().measure_bytes("flare_linear_scratch_bytes", rows, out_features, in_features)
    workspace = entries.scratch(size_bytes)
    entries.call("flare_linear", contiguous(x), weight, bias, y, workspace, rows, out_features, in_features)
    return y


@linear.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, out_features: int) -> Tensor:
    return x.new_empty((*x.shape[:-1], out_features))


@torch.library.custom_op("flare::embedding", mutates_args=())
def embedding(tokens: Tensor, token_slots: Tensor, weight: Tensor, rows: int, width: int) -> Tensor:
    """y bf16[*tokens, K]: rows of a packed table of [V, K], zero for padding."""
    y = entries.allocate((*tokens.shape, width), torch.bfloat16)
    entries.call("flare_embedding", contiguous(tokens), contiguous(token_slots), weight, y, tokens.numel(), rows, width)
    return y


@embedding.register_fake
def _(tokens: Tensor, token_slots: Tensor, weight: Tensor, rows: int, width: int) -> Tensor:
    return tokens.new_empty((*tokens.shape, width), dtype=torch.bfloat16)


@torch.library.custom_op("flare::copy", mutates_args=())
def copy(x: Tensor) -> Tensor:
    """y of the type, shape and bits of x, which a compiled forward computes once for all who read y."""
    y = entries.allocate(x.shape, x.dtype)
    entries.call("flare_copy", contiguous(x), y, x.numel() * x.element_size())
    return y


@copy.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("flare::kv_write", mutates_args={"pages"})
def kv_write(
    key: Tensor,
    value: Tensor,
    token_slots: Tensor,
    positions: Tensor,
    page_table: Tensor,
    pages: Tensor,
    page_stride: int,
    key_offset: int,
    value_offset: int,
) -> None:
    """Write key and value bf16[T, Hk, D] to the pages of each row's slot."""
    count, heads, width = key.shape
    entries.call(
        "flare_kv_write",
        *(contiguous(key), contiguous(value), contiguous(token_slots), contiguous(positions), page_table, pages),
        *(count, heads, width, page_table.shape[1], page_stride, key_offset, value_offset),
    )


@kv_write.register_fake
def _(
    key: Tensor,
    value: Tensor,
    token_slots: Tensor,
    positions: Tensor,
    page_table: Tensor,
    pages: Tensor,
    page_stride: int,
    key_offset: int,
    value_offset: int,
) -> None:
    return None


@torch.library.custom_op("flare::attention", mutates_args=())
def attention(
    query: Tensor,
    token_slots: Tensor,
    positions: Tensor,
    page_table: Tensor,
    pages: Tensor,
    key_value_heads: int,
    page_stride: int,
    key_offset: int,
    value_offset: int,
    scale: float,
    window: int,
    context_tokens: int,
) -> Tensor:
    """y bf16[T, Hq, D]: causal attention of query bf16[T, Hq, D] over its slot's pages; window 0 is unbounded."""
    count, heads, width = query.shape
    y = entries.allocate((count, heads, width), query.dtype)
    size_bytes = entries.library().measure_bytes("flare_attention_scratch_bytes", count, heads, width, context_tokens)
    workspace = entries.scratch(size_bytes)
    entries.call(
        "flare_attention",
        *(contiguous(query), contiguous(token_slots), contiguous(positions), page_table, pages, y, workspace),
        *(count, heads, key_value_heads, width, page_table.shape[1], page_stride, key_offset, value_offset),
        *(scale, window, workspace.numel()),
    )
    return y


@attention.register_fake
def _(
    query: Tensor,
    token_slots: Tensor,
    positions: Tensor,
    page_table: Tensor,
    pages: Tensor,
    key_value_heads: int,
    page_stride: int,
    key_offset: int,
    value_offset: int,
    scale: float,
    window: int,
    context_tokens: int,
) -> Tensor:
    return query.new_empty(query.shape)


def contiguous(tensor: Tensor) -> Tensor:
    """The tensor itself; an entry reads memory as it lies, and a copy would not be the recorded tensor."""
    assert tensor.is_contiguous(), f"an operator got a tensor of {tuple(tensor.shape)} with strides {tensor.stride()}"
    return tensor
