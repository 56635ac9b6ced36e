"""Vocabulary projection: FP32 logits of the lanes that sample."""

import torch
from torch import nn

from ignition.components.embedding import Embedding
from ignition.components.weights import WeightStore, WeightTarget
from ignition.kernels import ops


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
        """The table."""
        (tied,) = self._tied
        weight = self._own if tied is None else tied.weight
        assert isinstance(weight, torch.Tensor), "the vocabulary is used before its weights are placed"
        return weight

    def place(self, prefix: str, store: WeightStore) -> dict[str, WeightTarget]:
        """Take storage, unless it is tied."""
        if self._tied[0] is not None:
            return {}
        table = store.matrix(prefix + "weight", self.rows, self.width)
        self._own = table.tensor
        return {prefix + "weight": table}

    def project(self, hidden: torch.Tensor, logits: torch.Tensor, lanes: torch.Tensor) -> None:
        """hidden bf16[B, H] to logits f32[B, V], for lanes i64[B, 4] that sample; other rows are left alone."""
        ops.vocabulary(hidden, self.weight, logits, lanes, self.rows)
