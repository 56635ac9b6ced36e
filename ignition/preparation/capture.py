"""The catalog of programs: every operation family at every capacity, as functions that the recorder runs.

A function composes components around the compiled trunk. It takes nothing and returns nothing: a launch reads and
writes the value buffers, rows and pages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import torch

from ignition.components import sampling, state_transfer, token_state
from ignition.components.state import RequestState
from ignition.components.vocabulary import Vocabulary

TrunkCall = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Family(Enum):
    """Operation families; values are the contract's."""

    PREFILL = 1
    DECODE = 2
    RESUME = 3
    INITIALIZE = 4
    RESTORE = 5
    SNAPSHOT = 6
    RESET = 7


@dataclass(frozen=True)
class ProgramPlan:
    """One program to record."""

    name: str
    family: Family
    requests: int
    tokens: int  # Prefill: the chunk's capacity. Otherwise 0.
    function: Callable[[], None]

    @property
    def rows(self) -> int:
        """Rows that the trunk runs; 0 for a program without it."""
        return {Family.PREFILL: self.tokens, Family.DECODE: self.requests}.get(self.family, 0)


@dataclass(frozen=True)
class Recording:
    """What a device captured of a program, in its own terms."""

    nodes: Sequence[Any]
    addresses: frozenset[int]  # Every word that may be an address.
    launch: Callable[[], None]  # Makes the captured calls and nothing else.
    edges: Sequence[Any] = ()  # Empty: nodes run in order.


@dataclass(frozen=True)
class Program:
    """One captured program."""

    plan: ProgramPlan
    recording: Recording
    bindings: tuple[str, ...]  # Names of the value sources that it reads or writes.
    cost_ms: float

    @property
    def nodes(self) -> Sequence[Any]:
        """Its nodes, in the device's own terms."""
        return self.recording.nodes


def plan_programs(
    state: RequestState, trunk: TrunkCall, vocabulary: Vocabulary, *, prefill_capacities: list[int]
) -> list[ProgramPlan]:
    """The catalog, in the contract's order."""

    def prefill(tokens: int) -> None:
        batch = token_state.begin_prefill(state, tokens=tokens)
        hidden = trunk(batch.tokens, batch.positions, batch.token_slots)
        last = token_state.commit_prefill(state, batch, hidden)
        finish(last, batch.lanes, Family.PREFILL)

    def decode(lanes: int) -> None:
        batch = token_state.begin_decode(state, lanes=lanes)
        hidden = trunk(batch.tokens, batch.positions, batch.token_slots)
        finish(token_state.commit_decode(state, batch, hidden), batch.lanes, Family.DECODE)

    def resume() -> None:
        hidden, lanes = token_state.begin_resume(state, lanes=1)
        finish(hidden, lanes, Family.RESUME)

    def finish(hidden: torch.Tensor, lanes: torch.Tensor, family: Family) -> None:
        vocabulary.project(hidden, state.buffers.logits, lanes)
        sampling.sample(state, lanes, family=family.value)

    maintenance: list[tuple[Family, Callable[[RequestState], None]]] = [
        (Family.INITIALIZE, state_transfer.initialize),
        (Family.RESTORE, state_transfer.restore),
        (Family.SNAPSHOT, state_transfer.snapshot),
        (Family.RESET, state_transfer.reset),
    ]
    return [
        *(ProgramPlan(f"prefill.{n}", Family.PREFILL, 1, n, partial(prefill, n)) for n in prefill_capacities),
        *(
            ProgramPlan(f"decode.{n}", Family.DECODE, n, 0, partial(decode, n))
            for n in decode_capacities(state.requests_max)
        ),
        ProgramPlan("resume.1", Family.RESUME, 1, 0, resume),
        *(ProgramPlan(family.name.lower(), family, 1, 0, partial(function, state)) for family, function in maintenance),
    ]


def decode_capacities(requests_max: int) -> list[int]:
    """Powers of two up to the first that holds every request."""
    return [1 << power for power in range((requests_max - 1).bit_length() + 1)]


def prefill_capacities(limit: int, *, smallest: int = 16) -> list[int]:
    """Powers of two from the smallest below the limit, and the limit itself."""
    capacities = [smallest << power for power in range(limit.bit_length()) if smallest << power < limit]
    return [*capacities, limit]
