"""Token consumption: which rows a launch runs, and what it leaves consumed.

`begin_*` turns lanes or a prefill command into packed tokens, positions and slots after checking epochs and counts;
`commit_*` counts what was consumed and saves final hidden vectors. A rejected lane changes nothing.
"""

from dataclasses import dataclass

import torch

from ignition.components.state import RequestState
from ignition.kernels.host import entries

LANE_FIELDS = 4


@dataclass(frozen=True)
class Batch:
    """What a launch runs: tokens and positions i64[1, T], token_slots i64[T], lanes i64[B, 4]."""

    tokens: torch.Tensor
    positions: torch.Tensor
    token_slots: torch.Tensor
    lanes: torch.Tensor

    @classmethod
    def allocate(cls, *, tokens: int, lanes: int) -> "Batch":
        """Scratch for a launch."""
        i64 = torch.int64
        return cls(
            entries.allocate((1, tokens), i64),
            entries.allocate((1, tokens), i64),
            entries.allocate((tokens,), i64),
            entries.allocate((lanes, LANE_FIELDS), i64),
        )


def begin_decode(state: RequestState, *, lanes: int) -> Batch:
    """One pending token a lane."""
    batch, buffers = Batch.allocate(tokens=lanes, lanes=lanes), state.buffers
    entries.call(
        "flare_begin_decode",
        *(buffers.lane_slots, buffers.lane_epochs, buffers.lane_masked, buffers.request_fields),
        *(batch.tokens, batch.positions, batch.token_slots, batch.lanes),
        *(lanes, state.requests_max, state.vocabulary, state.context_tokens_max),
    )
    return batch


def begin_prefill(state: RequestState, *, tokens: int) -> Batch:
    """A chunk of one request's prompt."""
    batch, buffers = Batch.allocate(tokens=tokens, lanes=1), state.buffers
    entries.call(
        "flare_begin_prefill",
        *(buffers.prefill_command, buffers.prefill_tokens, buffers.request_fields),
        *(batch.tokens, batch.positions, batch.token_slots, batch.lanes),
        *(tokens, state.requests_max, state.vocabulary, state.context_tokens_max),
    )
    return batch


def begin_resume(state: RequestState, *, lanes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The saved hidden vectors bf16[B, H] of restored requests, and their lanes i64[B, 4]."""
    hidden = entries.allocate((lanes, state.hidden), torch.bfloat16)
    lane_records = entries.allocate((lanes, LANE_FIELDS), torch.int64)
    buffers = state.buffers
    entries.call(
        "flare_begin_resume",
        *(buffers.lane_slots, buffers.lane_epochs, buffers.lane_masked, buffers.request_fields),
        *(state.rows, hidden, lane_records, lanes, state.requests_max, state.hidden),
        *row_geometry(state),
    )
    return hidden, lane_records


def commit_decode(state: RequestState, batch: Batch, hidden: torch.Tensor) -> torch.Tensor:
    """Count each live lane's token and save its hidden vector; the hidden state as bf16[B, H]."""
    lanes = batch.lanes.shape[0]
    entries.call(
        "flare_commit_decode",
        *(hidden, batch.lanes, state.buffers.request_fields, state.rows, lanes, state.hidden),
        *row_geometry(state),
    )
    return hidden.view(lanes, state.hidden)


def commit_prefill(state: RequestState, batch: Batch, hidden: torch.Tensor) -> torch.Tensor:
    """Count the chunk and save its last live row's hidden vector, which is also the result, bf16[1, H]."""
    last = entries.allocate((1, state.hidden), torch.bfloat16)
    buffers = state.buffers
    entries.call(
        "flare_commit_prefill",
        *(hidden, buffers.prefill_command, batch.lanes, buffers.request_fields, state.rows, last),
        *(batch.tokens.shape[1], state.hidden),
        *row_geometry(state),
    )
    return last


def row_geometry(state: RequestState) -> tuple[int, int, int]:
    """row_stride, rows_per_slot, hidden_offset."""
    layout = state.layout
    return (layout.row_stride, layout.rows_per_slot, layout.row_offset("hidden"))
