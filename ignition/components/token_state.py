"""Token consumption: which rows a launch runs, and what it leaves consumed.

`begin_*` turns lanes or a prefill command into packed tokens, positions and slots after checking epochs and counts;
`commit_*` counts what was consumed and saves final hidden vectors. A rejected lane changes nothing.
"""

from dataclasses import dataclass

import torch

from ignition.components.state import RequestState
from ignition.kernels import ops


@dataclass(frozen=True)
class Batch:
    """What a launch runs: tokens and positions i64[1, T], token_slots i64[T], lanes i64[B, 4]."""

    tokens: torch.Tensor
    positions: torch.Tensor
    token_slots: torch.Tensor
    lanes: torch.Tensor


def begin_decode(state: RequestState, *, lanes: int) -> Batch:
    """One pending token a lane."""
    buffers = state.buffers
    lane_buffers = (buffers.lane_slots, buffers.lane_epochs, buffers.lane_masked)
    sizes = (lanes, state.vocabulary, state.context_tokens_max)
    return Batch(*ops.begin_decode(*lane_buffers, buffers.request_fields, *sizes))


def begin_prefill(state: RequestState, *, tokens: int) -> Batch:
    """A chunk of one request's prompt."""
    buffers = state.buffers
    sizes = (tokens, state.vocabulary, state.context_tokens_max)
    return Batch(*ops.begin_prefill(buffers.prefill_command, buffers.prefill_tokens, buffers.request_fields, *sizes))


def begin_resume(state: RequestState, *, lanes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The saved hidden vectors bf16[B, H] of restored requests, and their lanes i64[B, 4]."""
    buffers = state.buffers
    hidden, lane_records = ops.begin_resume(
        *(buffers.lane_slots, buffers.lane_epochs, buffers.lane_masked, buffers.request_fields, state.rows),
        *(lanes, state.hidden, *row_geometry(state)),
    )
    return hidden, lane_records


def commit_decode(state: RequestState, batch: Batch, hidden: torch.Tensor) -> torch.Tensor:
    """Count each live lane's token and save its hidden vector; the hidden state as bf16[B, H]."""
    ops.commit_decode(hidden, batch.lanes, state.buffers.request_fields, state.rows, *row_geometry(state))
    return hidden.view(batch.lanes.shape[0], state.hidden)


def commit_prefill(state: RequestState, batch: Batch, hidden: torch.Tensor) -> torch.Tensor:
    """Count the chunk and save its last live row's hidden vector, which is also the result, bf16[1, H]."""
    buffers = state.buffers
    last: torch.Tensor = ops.commit_prefill(
        *(hidden, buffers.prefill_command, batch.lanes, buffers.request_fields, state.rows, *row_geometry(state))
    )
    return last


def row_geometry(state: RequestState) -> tuple[int, int, int]:
    """row_stride, rows_per_slot, hidden_offset."""
    layout = state.layout
    return (layout.row_stride, layout.rows_per_slot, layout.row_offset("hidden"))
