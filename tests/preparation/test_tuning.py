"""The tuning session on a fake timer: what is raced, what is chosen, what is kept, and what is refused."""

import json
from dataclasses import replace

import pytest
import torch

from ignition.errors import PreparationError
from ignition.kernels import candidates
from ignition.kernels.candidates import Tunable
from ignition.preparation.selections import SelectionCache
from ignition.preparation.tuning import TuningSession

NAMESPACE = {"model": "a" * 64, "device": "9.0 with 132 multiprocessors"}


class Recipe:
    """An operator with three candidates, one of which this device does not run, and the calls that a program makes."""

    def __init__(self):
        self.ran = []
        self.scale = Tunable(
            name="scale",
            version=1,
            candidates=lambda query: [{"block": 1}, {"block": 2}, {"block": 64}],
            scratch_bytes=lambda query, candidate: candidate["block"] * dict(query.sizes)["rows"],
            run=self.run,
        )

    def run(self, candidate, x, factor):
        if candidate["block"] == 64:
            raise RuntimeError("out of shared memory")
        self.ran.append((candidate["block"], x.shape[0]))
        return x * factor

    def program(self, *rows):
        def function():
            for count in rows:
                candidates.call(self.scale, (torch.full((count, 4), 7.0), 3.0), rows=count, width=4)

        return function


class FakeBench:
    """Says that the second candidate is faster at 8 rows and the first at any other count."""

    def __init__(self, recipe):
        self.recipe = recipe
        self.events = []

    def reserve(self, scratch_bytes):
        self.events.append(("reserve", scratch_bytes))

    def prime(self, runs):
        self.events.append(("prime", len(runs)))

    def measure_us(self, produce, run):
        produce()
        run()
        block, rows = self.recipe.ran[-1]
        self.events.append(("measure", block, rows))
        return 5.0 if (block == 2) == (rows == 8) else 9.0

    def release(self):
        self.events.append(("release",))


def tuned(recipe, folder, *programs):
    session = TuningSession(SelectionCache(folder, NAMESPACE))
    bench = FakeBench(recipe)
    session.declare(programs, bench)
    session.select(bench)
    session.freeze()
    return session, bench


def test_the_fastest_candidate_of_each_question_runs_after_selection(tmp_path):
    recipe = Recipe()
    session, bench = tuned(recipe, tmp_path, recipe.program(1, 8), recipe.program(8, 1, 1))
    assert [event[0] for event in bench.events] == ["prime", "reserve", "prime", *["measure"] * 4, "release"]
    assert [event[1] for event in bench.events if event[0] == "prime"] == [2, 6], "programs, then candidates"
    recipe.ran.clear()
    with candidates.choosing(session):
        recipe.program(8, 1)()
    assert recipe.ran == [(2, 8), (1, 1)]


def test_declaring_runs_defaults_and_races_see_activations_of_their_own(tmp_path):
    recipe = Recipe()
    session, _ = tuned(recipe, tmp_path, recipe.program(8))
    assert recipe.ran[0] == (1, 8)
    assert session.notes()["selections"] == {"scale(rows=8, width=4)": {"candidate": {"block": 2}, "us": 5.0}}


def test_the_envelope_is_the_largest_of_any_candidate_and_the_selected_is_reported(tmp_path):
    recipe = Recipe()
    session, bench = tuned(recipe, tmp_path, recipe.program(1, 8))
    assert bench.events[1] == ("reserve", 64 * 8)
    notes = session.notes()
    assert (notes["candidate_scratch_bytes"], notes["selected_scratch_bytes"]) == (512, 16)


def test_a_candidate_that_does_not_run_is_dropped_and_named(tmp_path):
    recipe = Recipe()
    session, _ = tuned(recipe, tmp_path, recipe.program(8))
    (failure,) = session.notes()["failed_candidates"].items()
    assert failure == ("scale(rows=8, width=4) {'block': 64}", "RuntimeError: out of shared memory")


def test_a_question_without_a_running_candidate_is_an_error(tmp_path):
    recipe = Recipe()
    session = TuningSession(SelectionCache(tmp_path, NAMESPACE))
    broken = FakeBench(recipe)
    session.declare([recipe.program(8)], broken)
    recipe.run = None
    broken.measure_us = lambda produce, run: (_ for _ in ()).throw(RuntimeError("no kernel image"))
    with pytest.raises(PreparationError, match=r"no candidate of scale\(rows=8, width=4\).*no kernel image"):
        session.select(broken)


def test_an_undeclared_question_is_refused_after_freezing(tmp_path):
    recipe = Recipe()
    session, _ = tuned(recipe, tmp_path, recipe.program(8))
    with candidates.choosing(session), pytest.raises(PreparationError, match=r"rows=2.*was not declared"):
        recipe.program(2)()


def test_an_operator_with_one_way_to_run_is_not_raced(tmp_path):
    recipe = Recipe()
    recipe.scale = replace(recipe.scale, candidates=lambda query: [{"block": 1}])
    session, bench = tuned(recipe, tmp_path, recipe.program(8))
    assert bench.events == [("prime", 1), ("reserve", 0), ("prime", 0), ("release",)]
    with candidates.choosing(session):
        recipe.program(2)()
    assert recipe.ran == [(1, 8), (1, 2)]


def test_a_warm_session_measures_nothing(tmp_path):
    recipe = Recipe()
    tuned(recipe, tmp_path, recipe.program(1, 8))
    session, bench = tuned(recipe, tmp_path, recipe.program(1, 8))
    assert bench.events == [("prime", 1), ("reserve", 0), ("prime", 0), ("release",)]
    assert session.notes()["cache_hits"] == 2
    recipe.ran.clear()
    with candidates.choosing(session):
        recipe.program(8)()
    assert recipe.ran == [(2, 8)]


@pytest.mark.parametrize("changed", ["model", "version", "candidates"])
def test_a_cache_answers_only_for_what_it_was_asked_about(tmp_path, changed):
    recipe = Recipe()
    tuned(recipe, tmp_path, recipe.program(8))
    namespace = NAMESPACE | ({"model": "b" * 64} if changed == "model" else {})
    if changed == "version":
        recipe.scale = replace(recipe.scale, version=2)
    if changed == "candidates":
        recipe.scale = replace(recipe.scale, candidates=lambda query: [{"block": 1}, {"block": 2}])
    session = TuningSession(SelectionCache(tmp_path, namespace))
    bench = FakeBench(recipe)
    session.declare([recipe.program(8)], bench)
    session.select(bench)
    assert sum(event[0] == "measure" for event in bench.events) == 2


def test_a_cache_that_cannot_be_read_is_an_empty_one_and_is_written_anew(tmp_path):
    recipe = Recipe()
    tuned(recipe, tmp_path, recipe.program(8))
    (path,) = tmp_path.glob("*.json")
    path.write_text(path.read_text()[:50])
    tuned(recipe, tmp_path, recipe.program(8))
    assert json.loads(path.read_text())["namespace"]["model"] == NAMESPACE["model"]


def test_caches_of_two_processes_keep_each_others_selections(tmp_path):
    recipe = Recipe()
    first, second = (TuningSession(SelectionCache(tmp_path, NAMESPACE)) for _ in range(2))
    for session, rows in ((first, 1), (second, 8)):
        bench = FakeBench(recipe)
        session.declare([recipe.program(rows)], bench)
        session.select(bench)
    assert tuned(recipe, tmp_path, recipe.program(1, 8))[0].notes()["cache_hits"] == 2
