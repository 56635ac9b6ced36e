"""Dense projection: y = x W^T (+ b) in BF16 with FP32 sums."""

import torch
from torch import nn

from ignition.components.weights import PlainTarget, WeightStore, WeightTarget
from ignition.kernels import ops


class Linear(nn.Module):
    """Stands where `nn.Linear` stood, under the same weight names."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, in_features: int, out_features: int, *, bias: bool = False) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.has_bias = bias
        self.register_buffer("weight", None, persistent=False)
        self.register_buffer("bias", None, persistent=False)

    @classmethod
    def like(cls, linear: nn.Linear) -> "Linear":
        """The component that replaces a canonical projection."""
        return cls(linear.in_features, linear.out_features, bias=linear.bias is not None)

    def place(self, prefix: str, store: WeightStore) -> dict[str, WeightTarget]:
        """Take storage for the weight and the bias."""
        matrix = store.matrix(prefix + "weight", self.out_features, self.in_features)
        self.weight = matrix.tensor
        targets: dict[str, WeightTarget] = {prefix + "weight": matrix}
        if self.has_bias:
            self.bias = store.allocate(prefix + "bias", (self.out_features,), torch.bfloat16)
            targets[prefix + "bias"] = PlainTarget(self.bias)
        return targets

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """bf16 [..., in_features] to bf16 [..., out_features]."""
        y: torch.Tensor = ops.linear(x, self.weight, self.bias, self.out_features)
        return y
