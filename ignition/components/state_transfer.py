"""State maintenance of one slot: admission, exact copies to and from snapshot rows, and release.

Every command names its slot, epoch and consumed count; one that does not match is rejected and changes nothing.
"""

from collections.abc import Callable

from ignition.components.state import TOKEN_CAPACITY, RequestState
from ignition.kernels import ops


def initialize(state: RequestState) -> None:
    """Admit a request into a slot."""
    buffers = state.buffers
    ops.initialize(
        *(buffers.admission_command, buffers.admission_fields, buffers.admission_parameters),
        *(buffers.admission_prompt, buffers.admission_bias_tokens, buffers.admission_bias_values),
        *(buffers.request_fields, buffers.request_parameters, buffers.histogram),
        *(buffers.bias_tokens, buffers.bias_values, buffers.frame, buffers.completion),
        *(state.context_tokens_max, TOKEN_CAPACITY),
    )


def restore(state: RequestState) -> None:
    """Copy a snapshot row into a slot that has consumed nothing."""
    transfer(ops.restore, state)


def snapshot(state: RequestState) -> None:
    """Freeze a slot's consumed state into a row."""
    transfer(ops.snapshot, state)


def transfer(operator: Callable[..., None], state: RequestState) -> None:
    """A copy between a slot and a row."""
    buffers, layout = state.buffers, state.layout
    operator(
        *(buffers.state_command, buffers.request_fields, state.rows, state.pages, buffers.frame, buffers.completion),
        *(state.hidden, layout.row_stride, layout.rows_per_slot),
        *(layout.row_offset("consumed"), layout.row_offset("hidden"), layout.row_offset("partial_page")),
        *(layout.page_stride, layout.page_tokens, TOKEN_CAPACITY),
    )


def reset(state: RequestState) -> None:
    """Empty a slot."""
    buffers = state.buffers
    ops.reset(buffers.state_command, buffers.request_fields, buffers.frame, buffers.completion, TOKEN_CAPACITY)
