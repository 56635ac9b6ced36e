"""Projections by the number of their rows: few rows stream the weight (`projection`), many are a matrix product.

A matrix product runs on cuBLAS with what surrounds it in kernels of its own. A configuration matters to few rows alone;
where none is given the first candidate runs.
"""

import torch
from torch.nn import functional

from ignition.kernels.triton import projection
from ignition.kernels.triton.projection import Config, Shape
from ignition.kernels.triton.rows import add, gated, norm


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, out_features: int, config: Config | None = None
) -> torch.Tensor:
    """y bf16[..., N] of x bf16[..., K], weight bf16[N, K] and bias bf16[N]."""
    if is_product(x):
        return functional.linear(x, weight, bias)
    return stream(x, weight, out_features, config, bias=bias)


def linear_add(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor,
    out_features: int,
    config: Config | None = None,
) -> torch.Tensor:
    """residual + linear(x), both rounded."""
    if is_product(x):
        return add(residual, functional.linear(x, weight, bias))
    return stream(x, weight, out_features, config, bias=bias, residual=residual)


def norm_linear(
    x: torch.Tensor,
    gain: torch.Tensor,
    eps: float,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out_features: int,
    config: Config | None = None,
) -> torch.Tensor:
    """linear(RMSNorm(x)), of a weight that may join several projections of one input."""
    if is_product(x):
        return functional.linear(norm(x, gain, eps), weight, bias)
    return stream(x, weight, out_features, config, bias=bias, gain=gain, eps=eps)


def norm_gated(
    x: torch.Tensor,
    gain: torch.Tensor,
    eps: float,
    weight: torch.Tensor,
    out_features: int,
    config: Config | None = None,
) -> torch.Tensor:
    """silu(gate) * up of RMSNorm(x) and weight bf16[2 N, K], gate then up."""
    if is_product(x):
        return gated(functional.linear(norm(x, gain, eps), weight))
    return stream(x, weight, out_features, config, gain=gain, eps=eps, gated=True)


def vocabulary(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    logits: torch.Tensor,
    lanes: torch.Tensor,
    rows: int,
    config: Config | None = None,
) -> None:
    """logits f32[>= B, V] of hidden bf16[B, H] and weight bf16[V, H] for the lanes that sample; other rows stay."""
    count, width = hidden.shape
    assert count <= projection.ROWS_MAX, f"{count} lanes sample; a program has at most {projection.ROWS_MAX}"
    config = config or projection.candidates(Shape(count, rows, width))[0]
    projection.run(config, hidden, weight, logits[:count], lanes=lanes)


def is_product(x: torch.Tensor) -> bool:
    """Whether x has more rows than a weight is streamed for."""
    return x.numel() // x.shape[-1] > projection.ROWS_MAX


def stream(
    x: torch.Tensor,
    weight: torch.Tensor,
    out_features: int,
    config: Config | None,
    *,
    bias: torch.Tensor | None = None,
    gain: torch.Tensor | None = None,
    eps: float = 0.0,
    residual: torch.Tensor | None = None,
    gated: bool = False,
) -> torch.Tensor:
    """A projection of few rows."""
    count, width = x.numel() // x.shape[-1], x.shape[-1]
    shape = Shape(count, out_features, width, gated=gated, normed=gain is not None)
    y = torch.empty((*x.shape[:-1], out_features), dtype=x.dtype, device=x.device)
    config = config or projection.candidates(shape)[0]
    flat = (x.view(count, width), weight, y.view(count, out_features))
    projection.run(config, *flat, bias=bias, gain=gain, eps=eps, residual=residual, gated=gated)
    return y
