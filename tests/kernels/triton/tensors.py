"""Random tensors where the kernels run, and how far their arithmetic may be off."""

import torch

from ignition.kernels.triton.launch import INTERPRETED

DEVICE = "cpu" if INTERPRETED.value else "cuda"
U = 2.0**-24  # Unit roundoff of FP32.
BF16_ULP = 2.0**-7 if INTERPRETED.value else 2.0**-8  # The interpreter cuts where a device rounds to nearest.


def bf16(*shape, seed=0):
    """Random BF16 values."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16().to(DEVICE)
