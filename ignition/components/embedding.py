"""Token embedding; padding rows are zero."""

import torch
from torch import nn

from ignition.components.weights import WeightStore, WeightTarget
from ignition.kernels import ops


class Embedding(nn.Module):
    """Stands where `nn.Embedding` stood, under the same weight name. A tied vocabulary projection shares its table."""

    weight: torch.Tensor

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.rows, self.width = rows, width
        self.register_buffer("weight", None, persistent=False)

    @classmethod
    def like(cls, embedding: nn.Embedding) -> "Embedding":
        """The component that replaces a canonical embedding."""
        return cls(embedding.num_embeddings, embedding.embedding_dim)

    def place(self, prefix: str, store: WeightStore) -> dict[str, WeightTarget]:
        """Take storage for the table."""
        table = store.matrix(prefix + "weight", self.rows, self.width)
        self.weight = table.tensor
        return {prefix + "weight": table}

    def forward(self, tokens: torch.Tensor, token_slots: torch.Tensor) -> torch.Tensor:
        """tokens i64[...], token_slots i64[T] to bf16 [..., width]."""
        y: torch.Tensor = ops.embedding(tokens, token_slots, self.weight, self.rows, self.width)
        return y
