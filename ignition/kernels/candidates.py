"""Choosing among the candidates of an operator: several ways to compute the same thing, of which one is fastest.

An implementation with candidates runs through `call`. Which candidate that is, a chooser says: by default the first;
while a preparation declares, measures and captures, its tuning session. Candidates keep the operator's numerics
contract; nothing here measures.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

Candidate = Mapping[str, int | str]
"""A configuration by plain values, as a selection cache stores it."""


@dataclass(frozen=True)
class Query:
    """What is asked for: an operator at a geometry. Equal queries have one answer, whatever the layer."""

    operator: str
    sizes: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"{self.operator}({', '.join(f'{name}={size}' for name, size in self.sizes)})"


@dataclass(frozen=True)
class Tunable:
    """An operator with candidates."""

    name: str
    version: int  # Raised when a candidate of the same values would mean something else, or other ones are offered.
    candidates: Callable[[Query], Sequence[Candidate]]  # At least one; the first runs where nothing was measured.
    scratch_bytes: Callable[[Query, Candidate], int]  # What a call takes beside its results.
    run: Callable[..., Any]  # run(candidate, *arguments), allocating with torch on the arguments' device.


class Chooser(Protocol):
    """Says which candidate a call runs."""

    def choose(self, tunable: Tunable, query: Query, arguments: tuple[Any, ...]) -> Candidate:
        """The candidate for a call with these arguments, which the chooser may keep to measure with."""


class FirstCandidate:
    """Runs the default."""

    def choose(self, tunable: Tunable, query: Query, arguments: tuple[Any, ...]) -> Candidate:
        """The first candidate."""
        return tunable.candidates(query)[0]


_chooser: Chooser = FirstCandidate()


def call(tunable: Tunable, arguments: tuple[Any, ...], **sizes: int) -> Any:
    """Run an operator by the candidate chosen for `sizes`, which name everything that a choice may depend on."""
    query = Query(tunable.name, tuple(sizes.items()))
    return tunable.run(_chooser.choose(tunable, query, arguments), *arguments)


@contextmanager
def choosing(chooser: Chooser) -> Iterator[None]:
    """Let a chooser decide inside the block."""
    global _chooser
    former, _chooser = _chooser, chooser
    try:
        yield
    finally:
        _chooser = former
