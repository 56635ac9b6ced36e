"""Sampling: from logits to a token, a completion record and the request's next pending token, inside the program."""

import torch

from ignition.components.state import LOGPROBS_MAX, TOKEN_CAPACITY, RequestState
from ignition.kernels.host import entries


def sample(state: RequestState, lanes: torch.Tensor, *, family: int) -> None:
    """Sample the live lanes of lanes i64[B, 4] from the logits buffer; write every lane's completion record."""
    buffers = state.buffers
    count = lanes.shape[0]
    size_bytes = entries.library().measure_bytes("flare_sample_scratch_bytes", count, state.vocabulary)
    workspace = entries.scratch(size_bytes)
    entries.call(
        "flare_sample",
        *(buffers.logits, lanes, buffers.request_fields, buffers.request_parameters, buffers.histogram),
        *(buffers.bias_tokens, buffers.bias_values, buffers.grammar_masks, state.eos_tokens, buffers.frame),
        *(buffers.completion, buffers.logprob_tokens, buffers.logprob_values, workspace),
        *(count, state.vocabulary, state.requests_max, buffers.bias_tokens.shape[1], state.eos_tokens.numel()),
        *(buffers.completion.shape[1], TOKEN_CAPACITY, LOGPROBS_MAX, family),
    )
