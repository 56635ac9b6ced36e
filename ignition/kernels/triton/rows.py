"""Operators that pass over rows: embedding, copy, RMSNorm and the gate of an MLP."""

import torch
import triton
import triton.language as tl

from ignition.kernels.triton.launch import dependent, wait_for_previous
from ignition.kernels.triton.projection import gate, normed


@triton.jit
def gather_rows(tokens, token_slots, table, y, V, K, BLOCK: tl.constexpr):
    """A part of one token's row."""
    wait_for_previous()
    t = tl.program_id(0)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(tokens + t)
    known = (tl.load(token_slots + t) >= 0) & (token >= 0) & (token < V)
    row = tl.load(table + token * K + k, mask=known & (k < K), other=0)
    tl.store(y + t.to(tl.int64) * K + k, row, mask=k < K)


@triton.jit
def norm_rows(x, gain, y, eps, K: tl.constexpr, WIDE_K: tl.constexpr):
    """One row."""
    wait_for_previous()
    k = tl.arange(0, WIDE_K)
    at = tl.program_id(0).to(tl.int64) * K + k
    row = tl.load(x + at, mask=k < K, other=0)
    square = row.to(tl.float32) * row.to(tl.float32)
    scale = tl.rsqrt(tl.sum(square, 0) / K + eps)
    tl.store(y + at, normed(row, tl.load(gain + k, mask=k < K, other=0), scale), mask=k < K)


@triton.jit
def gate_rows(x, y, K, BLOCK: tl.constexpr):
    """A part of one row: silu of its first half times its second."""
    wait_for_previous()
    t = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = gate(
        tl.load(x + t * 2 * K + k, mask=k < K, other=0).to(tl.float32), tl.load(x + (t * 2 + 1) * K + k, mask=k < K)
    )
    tl.store(y + t * K + k, value.to(tl.bfloat16), mask=k < K)


@triton.jit
def add_values(x, y, count, BLOCK: tl.constexpr):
    """y += x, of rounded values."""
    wait_for_previous()
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i, mask=i < count, other=0), tl.load(y + i, mask=i < count, other=0)
    tl.store(y + i, (a.to(tl.float32) + b.to(tl.float32)).to(tl.bfloat16), mask=i < count)


def embedding(
    tokens: torch.Tensor, token_slots: torch.Tensor, weight: torch.Tensor, rows: int, width: int
) -> torch.Tensor:
    """y bf16[*tokens, K]: rows of a table bf16[V, K], zero for padding."""
    y = torch.empty((*tokens.shape, width), dtype=torch.bfloat16, device=tokens.device)
    grid = (tokens.numel(), triton.cdiv(width, 1024))
    gather_rows[grid](tokens, token_slots, weight, y, rows, width, **{"BLOCK": 1024, **dependent()})
    return y


def copy(x: torch.Tensor) -> torch.Tensor:
    """y of the type, shape and bits of x."""
    return torch.empty_like(x).copy_(x)


def norm(x: torch.Tensor, gain: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm over the last dimension of x bf16[..., K]."""
    y, width = torch.empty_like(x), x.shape[-1]
    wide = triton.next_power_of_2(width)
    norm_rows[(x.numel() // width,)](
        *(x, gain, y, eps), **{"K": width, "WIDE_K": wide, "num_warps": 4 if wide <= 4096 else 8, **dependent()}
    )
    return y


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """y += x."""
    count = y.numel()
    add_values[(triton.cdiv(count, 2048),)](x, y, count, **{"BLOCK": 2048, "num_warps": 4, **dependent()})
    return y


def gated(x: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of x bf16[..., 2 K], gate then up."""
    width = x.shape[-1] // 2
    y = torch.empty((*x.shape[:-1], width), dtype=x.dtype, device=x.device)
    grid = (y.numel() // width, triton.cdiv(width, 2048))
    gate_rows[grid](x, y, width, **{"BLOCK": 2048, "num_warps": 4, **dependent()})
    return y
