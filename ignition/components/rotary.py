"""Rotary angles that are computed once a launch.

A generated kernel computes what is cheap anew wherever it is read, and takes a sine for cheap: every layer would
compute the angles of all tokens again, a tenth of a long prefill.
"""

import torch
from torch import nn

from ignition.kernels import ops


class SharedRotary(nn.Module):
    """A canonical rotary embedding whose cosines and sines lie in memory for all layers."""

    def __init__(self, rotary: nn.Module) -> None:
        super().__init__()
        self.rotary = rotary

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x [1, T, H] and positions i64[1, T] to cosines and sines [1, T, D] of x's type."""
        cosines, sines = self.rotary(x, position_ids)
        return ops.copy(cosines), ops.copy(sines)
