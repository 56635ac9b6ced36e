"""Projections of few rows against float64."""

import pytest
import torch
from tensors import BF16_ULP, U, bf16

from ignition.kernels.triton.projection import Config, run


def bound(x, weight, exact):
    """FP32 sums in any order, then one rounding to BF16, which the interpreter does by cutting."""
    sums = x.abs().double() @ weight.abs().double().T
    return (x.shape[-1] + 2) * U * sums + BF16_ULP * exact.abs() + 1e-30


@pytest.mark.parametrize(
    "config", [Config(8, 256, 4), Config(4, 512, 2), Config(16, 64, 1, 3, 8), Config(32, 128, 2, 2, 16)]
)
@pytest.mark.parametrize(("n", "k"), [(48, 576), (33, 1000), (16, 256)])
def test_a_projection_is_within_rounding(config, n, k):
    """Every configuration, with edges in both directions."""
    rows = 3 if config.lanes == 0 else 5
    x, weight, bias = bf16(rows, k), bf16(n, k, seed=1), bf16(n, seed=2)
    y = run(config, x, weight, x.new_empty(rows, n), bias=bias)
    exact = x.double() @ weight.double().T + bias.double()
    assert torch.all((y.double() - exact).abs() <= bound(x, weight, exact))
    wide = run(config, x, weight, x.new_empty(rows, n, dtype=torch.float32))
    exact = x.double() @ weight.double().T
    assert torch.all((wide.double() - exact).abs() <= (k + 2) * U * (x.abs().double() @ weight.abs().double().T))
