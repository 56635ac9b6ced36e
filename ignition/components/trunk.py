"""The trunk: a canonical base model as a function of packed tokens, positions and slots."""

import torch
from torch import nn

from ignition.components.attention import IMPLEMENTATION
from ignition.components.embedding import Embedding


class Trunk(nn.Module):
    """Runs the canonical forward of a text model whose weighted modules are components."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        assert isinstance(model.embed_tokens, Embedding), "the model's embedding is not a component yet"
        self.model = model
        model.config._attn_implementation = IMPLEMENTATION  # type: ignore[union-attr]

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, token_slots: torch.Tensor) -> torch.Tensor:
        """tokens and positions i64[1, T], token_slots i64[T] to the final normalized hidden state, bf16[1, T, H]."""
        embedding = self.model.embed_tokens
        assert isinstance(embedding, Embedding)
        result = self.model(
            inputs_embeds=embedding(tokens, token_slots),
            position_ids=positions,
            use_cache=False,
            token_slots=token_slots,
            token_positions=positions[0],
        )
        hidden: torch.Tensor = result.last_hidden_state
        return hidden
