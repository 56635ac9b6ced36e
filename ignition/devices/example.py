"""Inputs that a trunk is traced with, over a symbolic count of rows, and which of a graph's inputs is which."""

from dataclasses import dataclass

import torch

EXAMPLE_TOKENS = 512
"""The count that Inductor's cost model assumes: kernels are shaped for prefill."""


@dataclass(frozen=True)
class Example:
    """Inputs for tracing, and which of a graph's inputs is which of them."""

    tokens: torch.Tensor
    positions: torch.Tensor
    token_slots: torch.Tensor
    hidden: torch.Tensor

    @classmethod
    def of(cls, count: int, width: int, *, device: str) -> "Example":
        """Inputs whose count of tokens is symbolic."""
        tokens = torch.zeros((1, count), dtype=torch.int64, device=device)
        positions = torch.arange(count, device=device)[None]
        token_slots = torch.zeros(count, dtype=torch.int64, device=device)
        torch._dynamo.mark_dynamic(tokens, 1)
        torch._dynamo.mark_dynamic(positions, 1)
        torch._dynamo.mark_dynamic(token_slots, 0)
        hidden = torch.zeros((1, count, width), dtype=torch.bfloat16, device=device)
        return cls(tokens, positions, token_slots, hidden)

    @property
    def arguments(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What the trunk is called with."""
        return (self.tokens, self.positions, self.token_slots)

    def name(self, argument: torch.Tensor | torch.SymInt | int) -> torch.Tensor | str:
        """The name of an input that a call gives; any other is the model's own tensor."""
        if isinstance(argument, torch.SymInt):
            return "count"  # Comparing it would make it the example's.
        if isinstance(argument, int):
            assert argument == self.tokens.shape[1], f"the graph takes the integer {argument}, which is no count"
            return "count"
        for name in ("tokens", "positions", "token_slots"):
            if argument.data_ptr() == getattr(self, name).data_ptr():
                return name
        return argument
