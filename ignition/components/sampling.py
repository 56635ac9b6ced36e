"""Sampling: from logits to a token, a completion record and the request's next pending token, inside the program."""

import torch

from ignition.components.state import TOKEN_CAPACITY, RequestState
from ignition.kernels import ops


def sample(state: RequestState, lanes: torch.Tensor, *, family: int) -> None:
    """Sample the live lanes of lanes i64[B, 4] from the logits buffer; write every lane's completion record."""
    buffers = state.buffers
    ops.sample(
        *(buffers.logits, lanes, buffers.request_fields, buffers.request_parameters, buffers.histogram),
        *(buffers.bias_tokens, buffers.bias_values, buffers.grammar_masks, state.eos_tokens, buffers.frame),
        *(buffers.completion, buffers.logprob_tokens, buffers.logprob_values, TOKEN_CAPACITY, family),
    )
