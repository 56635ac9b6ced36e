"""Vocabulary projection: FP32 logits of the lanes that sample."""

import torch
from torch import nn

from ignition.components.embedding import Embedding
from ignition.components.packed import PackedWeight
from ignition.components.weights import Allocate, WeightTarget
from ignition.kernels.host import entries


class Vocabulary(nn.Module):
    """The output head. With `tied` it has no weight of its own and reads that embedding's table."""

    def __init__(self, rows: int, width: int, *, tied: Embedding | None = None) -> None:
        super().__init__()
        assert tied is None or (tied.rows, tied.width) == (rows, width)
        self.rows, self.width = rows, width
        # In a tuple, so that the embedding is not also a child of this module.
        self._tied = (tied,)
        self.register_buffer("_own", None, persistent=False)

    @property
    def weight(self) -> torch.Tensor:
        """The packed table."""
        (tied,) = self._tied
        weight = self._own if tied is None else tied.weight
        assert isinstance(weight, torch.Tensor), "the vocabulary is used before its weights are placed"
        return weight

    def place(self, prefix: str, allocate: Allocate) -> dict[str, WeightTarget]:
        """Take storage, unless it is tied."""
        if self._tied[0] is not None:
            return {}
        packed = PackedWeight(prefix + "weight", self.rows, self.width, allocate)
        self._own = packed.tensor
        return {prefix + "weight": packed}

    def project(self, hidden: torch.Tensor, logits: torch.Tensor, lanes: torch.Tensor) -> None:
        """hidden bf16[B, H] to logits f32[B, V], for lanes i64[B, 4] that sample; other rows are left alone."""
        entries.call("flare_vocabulary", hidden, self.weight, logits, lanes, hidden.shape[0], self.rows, self.width)
