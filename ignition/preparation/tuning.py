"""The tuning session: what runs is declared, raced among its candidates where it will run, and frozen.

    declare   programs run by default candidates, at first side by side, for what they compile; every question that they
              ask is noted
    select    one scratch envelope for all candidates is reserved, each question's race is measured with its activations
              just produced, the fastest is kept, and the envelope is given back
    freeze    only declared questions are answered from here on

Selections outlive the session in a cache whose key says everything that a race depends on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from ignition.errors import PreparationError
from ignition.kernels.candidates import Candidate, Query, Tunable, choosing
from ignition.preparation.fixtures import Trial, fixture_of
from ignition.preparation.selections import Selection, SelectionCache


class Bench(Protocol):
    """A device's way to measure."""

    def reserve(self, scratch_bytes: int) -> None:
        """Hold as much scratch ready as any trial takes, so that none waits for memory."""

    def prime(self, runs: Sequence[Callable[[], object]]) -> None:
        """Run each once, whatever comes of it: what a first run compiles is there when it is measured."""

    def measure_us(self, produce: Callable[[], object], run: Callable[[], object]) -> float:
        """Microseconds of `run` on the device, right after `produce` and with nothing else in its caches."""

    def release(self) -> None:
        """Give back what trials held."""


@dataclass(frozen=True)
class Request:
    """A declared question, and how to set its race up."""

    tunable: Tunable
    query: Query
    make_trial: Callable[[], Trial]


class TuningSession:
    """A `Chooser`. See the module for the order of its steps."""

    def __init__(self, cache: SelectionCache) -> None:
        self._cache = cache
        self._requests: dict[Query, Request] = {}
        self._selections: dict[Query, Selection] = {}
        self._frozen = False
        self._trials = 0
        self._hits = 0
        self._candidate_scratch_bytes = 0
        self._failures: dict[str, str] = {}

    def choose(self, tunable: Tunable, query: Query, arguments: tuple[Any, ...]) -> Candidate:
        """What was selected; while nothing is, the default, and the question is declared."""
        if query in self._selections:
            return self._selections[query].candidate
        offered = tunable.candidates(query)
        if len(offered) == 1:
            return offered[0]
        if self._frozen:
            raise PreparationError(f"{query} was not declared; programs have to ask the same whenever they run")
        if query not in self._requests:
            self._requests[query] = Request(tunable, query, fixture_of(tunable.name)(*arguments))
        return offered[0]

    def declare(self, functions: Sequence[Callable[[], object]], bench: Bench) -> None:
        """Run functions by default candidates, and note what they ask."""
        with choosing(self):
            bench.prime(functions)
            for function in functions:
                function()

    def select(self, bench: Bench) -> None:
        """Answer every declared question, from the cache or by a race. Raises `PreparationError` for one without."""
        missing: list[Request] = []
        for request in self._requests.values():
            held = self._cache.find(request.tunable, request.query)
            if held is None:
                missing.append(request)
            else:
                self._selections[request.query] = held
                self._hits += 1
        self._candidate_scratch_bytes = max(
            (
                request.tunable.scratch_bytes(request.query, candidate)
                for request in missing
                for candidate in request.tunable.candidates(request.query)
            ),
            default=0,
        )
        bench.reserve(self._candidate_scratch_bytes)
        races = {request.query: Race.of(request) for request in missing}
        bench.prime([run for race in races.values() for _, run in race.runs])
        for query, race in races.items():
            self._selections[query] = self._hold(race, bench)
        del races
        bench.release()
        self._cache.add({request.query: (request.tunable, self._selections[request.query]) for request in missing})

    def freeze(self) -> None:
        """Answer only what was declared, and let go of what races held."""
        self._frozen = True

    def notes(self) -> dict[str, Any]:
        """The report's section."""
        requests = self._requests.values()
        selected = (one.tunable.scratch_bytes(one.query, self._selections[one.query].candidate) for one in requests)
        return {
            "trials": self._trials,
            "cache_hits": self._hits,
            "candidate_scratch_bytes": self._candidate_scratch_bytes,
            "selected_scratch_bytes": max(selected, default=0),
            "selections": {
                str(query): {"candidate": dict(one.candidate), "us": round(one.us, 2)}
                for query, one in sorted(self._selections.items(), key=lambda item: str(item[0]))
            },
            "failed_candidates": self._failures,
        }

    def _hold(self, race: "Race", bench: Bench) -> Selection:
        best: Selection | None = None
        failures: dict[str, str] = {}
        for candidate, run in race.runs:
            try:
                us = bench.measure_us(race.trial.produce, run)
            except Exception as error:  # noqa: BLE001 - Compilers and launchers raise many types, all about the candidate.
                failures[f"{race.query} {dict(candidate)}"] = f"{type(error).__name__}: {error}"[:200]
                continue
            self._trials += 1
            if best is None or us < best.us:
                best = Selection(candidate, us)
        self._failures |= failures
        if best is None:
            raise PreparationError(f"no candidate of {race.query} runs on this device: {'; '.join(failures.values())}")
        return best


@dataclass(frozen=True)
class Race:
    """A question with operands, and each candidate as a function to run."""

    query: Query
    trial: Trial
    runs: Sequence[tuple[Candidate, Callable[[], object]]]

    @classmethod
    def of(cls, request: Request) -> "Race":
        """Make the operands and produce the activations."""
        trial = request.make_trial()
        trial.produce()
        offered = request.tunable.candidates(request.query)
        return cls(
            request.query, trial, [(one, partial(request.tunable.run, one, *trial.arguments)) for one in offered]
        )
