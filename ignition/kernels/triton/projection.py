"""Projections of few rows: y = f(x W^T) with the weight streamed once, at the speed of the device's memory.

A program takes a block of outputs over the whole of K, so an output's bits depend on its row and on the configuration
alone. What surrounds a projection is part of it: the RMSNorm of its input, its bias, the gate of an MLP, the residual
that its output is added to. A joined weight is one tensor: q, k and v, or gate then up, one after another.

`candidates` names the configurations of a shape and `run` runs one; which is best is measured by who prepares. Nothing
is remembered between calls.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ignition.kernels.triton.fields import LANE_FIELDS, LANE_SAMPLE, LANE_STATUS, STATUS_LIVE
from ignition.kernels.triton.launch import dependent, multiply, wait_for_previous

ROWS_MAX = 16
"""More rows than this are a matrix product."""

VECTOR_ROWS_MAX = 2
"""More rows than this are a tile of the matrix units."""


@dataclass(frozen=True)
class Shape:
    """What decides which configuration is best. `out_features` of a gated projection are those after the gate."""

    rows: int
    out_features: int
    in_features: int
    gated: bool = False
    normed: bool = False


@dataclass(frozen=True)
class Config:
    """How a projection is cut: a program's outputs, and the part of K that it takes at a time.

    `lanes` is 0 for vector units, which take any rows one after another, else the rows that a tile of the matrix units
    holds. `stages` parts are under way through shared memory there.
    """

    block_n: int
    block_k: int
    warps: int
    stages: int = 1
    lanes: int = 0


@triton.jit
def normed(x, gain, scale):
    """A part of a row after RMSNorm, rounded where the canonical module rounds."""
    return ((x.to(tl.float32) * scale).to(tl.bfloat16).to(tl.float32) * gain.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def gate(a, b):
    """silu(a) * b of BF16 values, rounded after each step as the canonical module does."""
    a = a.to(tl.bfloat16).to(tl.float32)
    return (a / (1 + tl.exp(-a))).to(tl.bfloat16).to(tl.float32) * b.to(tl.bfloat16).to(tl.float32)


@triton.jit
def finish(y, value, bias, residual, at, n, mask, BIASED: tl.constexpr, ADDS: tl.constexpr):
    """Store outputs after the bias and the residual, rounded as separate modules would round."""
    if BIASED:
        value += tl.load(bias + n, mask=mask, other=0).to(tl.float32)
    if ADDS:
        value = value.to(tl.bfloat16).to(tl.float32) + tl.load(residual + at, mask=mask, other=0).to(tl.float32)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=mask)


@triton.jit
def samples(lane, present=True):
    """Whether lanes are live and sample."""
    status = tl.load(lane + LANE_STATUS, mask=present, other=0)
    return (status == STATUS_LIVE) & (tl.load(lane + LANE_SAMPLE, mask=present, other=0) != 0)


@triton.jit
def load_part(w, row, k, N, K: tl.constexpr):
    """A part of a weight, which no later kernel of the launch reads again."""
    mask = (row < N)[:, None] & (k < K)[None, :]
    return tl.load(w + row.to(tl.int64)[:, None] * K + k[None, :], mask=mask, other=0, eviction_policy="evict_first")


@triton.jit
def sum_of_eights(products):
    """Sums of eight products, which one thread holds."""
    BLOCK_N: tl.constexpr = products.shape[0]
    BLOCK_K: tl.constexpr = products.shape[1]
    return tl.sum(tl.reshape(products, (BLOCK_N, BLOCK_K // 8, 8)), 2)


@triton.jit
def project_on_vectors(
    x, gain, w, bias, residual, lanes, y, N, eps, ROWS: tl.constexpr, LANES: tl.constexpr,
    K: tl.constexpr, WIDE_K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
    NORMED: tl.constexpr, GATED: tl.constexpr, BIASED: tl.constexpr,
    ADDS: tl.constexpr, LANED: tl.constexpr,
):  # fmt: skip
    """A thread multiplies its part of K for every output and row while the next part of the weight is on its way."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.arange(0, BLOCK_K)
    w_up = w + tl.cast(N, tl.int64) * K
    next_tile = load_part(w, n, part, N, K)
    if GATED:
        next_up = load_part(w_up, n, part, N, K)
    wait_for_previous()
    sums: tl.tuple = ()
    ups: tl.tuple = ()
    scales: tl.tuple = ()
    end = 0 if LANED else K
    for r in tl.static_range(ROWS):
        sums = sums + (tl.zeros((BLOCK_N, BLOCK_K // 8), tl.float32),)
        ups = ups + (tl.zeros((BLOCK_N, BLOCK_K // 8), tl.float32),)
        scales = scales + (inverse_rms(x + r * K, eps, K, WIDE_K) if NORMED else 1.0,)
        if LANED:
            end = tl.where(samples(lanes + r * LANE_FIELDS), K, end)
    for start in tl.range(0, end, BLOCK_K):
        k = start + part
        tile = next_tile.to(tl.float32)
        next_tile = load_part(w, n, k + BLOCK_K, N, K)
        if GATED:
            up = next_up.to(tl.float32)
            next_up = load_part(w_up, n, k + BLOCK_K, N, K)
        new_sums: tl.tuple = ()
        new_ups: tl.tuple = ()
        for r in tl.static_range(ROWS):
            a = tl.load(x + r * K + k, mask=k < K, other=0)
            if NORMED:
                a = normed(a, tl.load(gain + k, mask=k < K, other=0), scales[r])
            a = a.to(tl.float32)[None, :]
            new_sums = new_sums + (sums[r] + sum_of_eights(tile * a),)
            new_ups = new_ups + ((ups[r] + sum_of_eights(up * a)) if GATED else ups[r],)
        sums, ups = new_sums, new_ups
    for r in tl.static_range(ROWS):
        value = tl.sum(sums[r], 1)
        if GATED:
            value = gate(value, tl.sum(ups[r], 1))
        mask = n < N
        if LANED:
            mask = mask & samples(lanes + r * LANE_FIELDS)
        finish(y, value, bias, residual, r * N + n, n, mask, BIASED, ADDS)


@triton.jit
def inverse_rms(row, eps, K: tl.constexpr, WIDE_K: tl.constexpr):
    """1 / sqrt(mean(x^2) + eps) of a row."""
    k = tl.arange(0, WIDE_K)
    value = tl.load(row + k, mask=k < K, other=0).to(tl.float32)
    return tl.rsqrt(tl.sum(value * value, 0) / K + eps)


@triton.jit
def project_on_tiles(
    x, gain, w, bias, residual, lanes, y, N, eps, ROWS: tl.constexpr, LANES: tl.constexpr,
    K: tl.constexpr, WIDE_K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
    NORMED: tl.constexpr, GATED: tl.constexpr, BIASED: tl.constexpr,
    ADDS: tl.constexpr, LANED: tl.constexpr,
):  # fmt: skip
    """Up to LANES rows on matrix units; STAGES parts of the weight are under way through shared memory.

    The first part of the weight waits in registers for the kernel before.
    """
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    r, part = tl.arange(0, LANES), tl.arange(0, BLOCK_K)
    w_up = w + tl.cast(N, tl.int64) * K
    tile = load_part(w, n, part, N, K)
    if GATED:
        up_tile = load_part(w_up, n, part, N, K)
    wait_for_previous()
    present = r < ROWS
    end = K
    if LANED:
        present = present & samples(lanes + r * LANE_FIELDS, present)
        end = tl.where(tl.max(present.to(tl.int32), 0) > 0, K, 0)
    scale = tl.zeros((LANES,), tl.float32)
    if NORMED:
        for i in tl.static_range(ROWS):
            scale = tl.where(r == i, inverse_rms(x + i * K, eps, K, WIDE_K), scale)
    a = load_input(x, gain, scale, r, part, present, K, NORMED)
    acc = multiply(tile, a, tl.zeros((BLOCK_N, LANES), tl.float32))
    up = acc
    if GATED:
        up = multiply(up_tile, a, tl.zeros((BLOCK_N, LANES), tl.float32))
    for start in tl.range(BLOCK_K, end, BLOCK_K, num_stages=STAGES):
        a = load_input(x, gain, scale, r, start + part, present, K, NORMED)
        acc = multiply(load_part(w, n, start + part, N, K), a, acc)
        if GATED:
            up = multiply(load_part(w_up, n, start + part, N, K), a, up)
    if GATED:
        acc = gate(acc, up)
    mask = (n < N)[:, None] & present[None, :]
    finish(y, acc, bias, residual, r[None, :] * N + n[:, None], n[:, None], mask, BIASED, ADDS)


@triton.jit
def load_input(x, gain, scale, r, k, present, K: tl.constexpr, NORMED: tl.constexpr):
    """A part of the rows as a tile [BLOCK_K, LANES], after their RMSNorm."""
    a = tl.load(x + r[None, :] * K + k[:, None], mask=present[None, :] & (k < K)[:, None], other=0)
    if NORMED:
        a = normed(a, tl.load(gain + k, mask=k < K, other=0)[:, None], scale[None, :])
    return a


def candidates(shape: Shape) -> list[Config]:
    """Configurations worth racing for a shape; the first is what runs where none was chosen."""
    if shape.rows <= VECTOR_ROWS_MAX:
        cuts = [(4, 8), (2, 8), (8, 8), (4, 4), (8, 4)]
        return [Config(block_n=n, block_k=256 * warps, warps=warps) for n, warps in cuts]
    lanes = 8 if shape.rows <= 8 else 16
    tiles = [(16, 256, 1, 5), (32, 256, 2, 4), (16, 512, 1, 3)]
    # A gate has two weights on their way.
    reach = 1 if shape.gated else 0
    return [Config(n, k, warps, stages - reach, lanes) for n, k, warps, stages in tiles]


def run(
    config: Config,
    x: torch.Tensor,
    weight: torch.Tensor,
    y: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    gain: torch.Tensor | None = None,
    eps: float = 0.0,
    residual: torch.Tensor | None = None,
    lanes: torch.Tensor | None = None,
    gated: bool = False,
) -> torch.Tensor:
    """y[T, N] of x bf16[T, K] and weight bf16[N, K] ([2 N, K] of a gated one); with lanes, of the rows that sample."""
    rows, features = y.shape[0], y.shape[-1]
    width = x.shape[-1]
    options = {
        **{"ROWS": rows, "LANES": config.lanes, "K": width, "WIDE_K": triton.next_power_of_2(width)},
        **{"BLOCK_N": config.block_n, "BLOCK_K": config.block_k, "STAGES": config.stages},
        **{"NORMED": gain is not None, "GATED": gated, "BIASED": bias is not None, "ADDS": residual is not None},
        **{"LANED": lanes is not None, "num_warps": config.warps, "num_stages": config.stages, **dependent()},
    }
    absent = x  # A pointer that the kernel is told not to read.
    kernel = project_on_tiles if config.lanes else project_on_vectors
    kernel[(triton.cdiv(features, config.block_n),)](
        *(x, absent if gain is None else gain, weight, absent if bias is None else bias),
        *(absent if residual is None else residual, absent if lanes is None else lanes, y, features, eps),
        **options,
    )
    return y
