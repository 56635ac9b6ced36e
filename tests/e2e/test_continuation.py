"""Recorded agent conversations give the same tokens and log probabilities, bit for bit, wherever history comes from.

The truth is a server without prefix cache. FLARE_TEST_FULL=1 replays all twenty conversations, not just the smoke set.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from scripts.server import Server
from tests.e2e.conversations import Conversation, selected
from tests.e2e.ledger import SMALLEST_CHUNK_TOKENS, Ledger
from tests.e2e.replay import GREEDY, REPLAYS_AT_ONCE, Answers, Replay, assert_same, replay_together

CONVERSATIONS = selected()
# Twenty conversations' prefill without cache, many times over, on two slow cores.
pytestmark = pytest.mark.timeout(1800)

TIER = "2GiB"
# Less than the smallest chunk computes is not fetched from a tier.
NOT_FETCHED_TOKENS = SMALLEST_CHUNK_TOKENS - 1
PAGE_TOKENS, PAGE_MIB = 64, 1.41
# Snapshot rows take up to a tenth of the budget before pages get any.
SNAPSHOT_SHARE = 0.1
# Then the wait is over in any case: what a tier has already is not stored again, but counts as published.
STORE_TIMEOUT_S = 1
# Long replies, so that decoders outgrow what admission reserved for them.
LONG_TURNS, LONG_OUTPUT_TOKENS = 2, 140
LONG = {**GREEDY, "ignore_eos": True}


@pytest.fixture
def ledger(tokenizer, core: Path) -> Ledger:
    with safe_open(core / "rank-0.safetensors", "numpy") as file:
        return Ledger(tokenizer, file.get_tensor("frontend.template").tobytes().decode())


@pytest.fixture
def start_small(start_server, smallest_mib: int) -> Callable[..., Server]:
    """Starts a server with pages for the longest of some conversations alone, and checks that all would not fit."""

    def start(answers: Answers, *arguments: str) -> Server:
        longest = [max(a.prompt_tokens + a.completion_tokens for a in given) for given in answers.values()]
        pages = max(longest) // PAGE_TOKENS + 2
        memory_mib = math.ceil((smallest_mib + pages * PAGE_MIB) / (1 - SNAPSHOT_SHARE))
        server = start_server("--memory", f"{memory_mib}MiB", *arguments)
        pages_max = server.health()["engine"]["pages_max"]
        assert pages <= pages_max
        assert sum(longest) > 1.5 * pages_max * PAGE_TOKENS
        return server

    return start


def test_without_a_cache_nothing_is_cached_and_answers_repeat(uncached: Server, truth: Answers) -> None:
    answers = [answer for given in truth.values() for answer in given]
    assert {answer.cached_tokens for answer in answers} == {0}
    assert {token["token"] for answer in answers for token in answer.logprobs}
    first = CONVERSATIONS[0]
    before = computed_tokens(uncached)
    again = Replay(first).finish(uncached)
    assert_same(first, again, truth[first.name])
    assert computed_tokens(uncached) - before == sum(answer.prompt_tokens for answer in again)


def test_with_the_cache(start_server, truth: Answers, ledger: Ledger) -> None:
    """Each conversation has a server of its own: rows would be short for many, and branches lose their places first."""
    for conversation in CONVERSATIONS:
        server = start_server()
        replay = Replay(conversation)
        while replay.step is not None:
            check_next(server, replay, ledger)
        assert server.stop() == 0
        assert_same(conversation, replay.answers, truth[conversation.name])


def test_cached_tokens_are_exact_while_nothing_is_evicted(start_server, ledger: Ledger) -> None:
    """A turn goes on from the one before, an edit from what it keeps, a neighbour from the instructions they share."""
    server = start_server()
    (turn_1, turn_2, turn_3), edit = CONVERSATIONS[0].steps[:3], CONVERSATIONS[0].steps[-6]
    edited = dataclasses.replace(edit, follows=1)
    first = dataclasses.replace(CONVERSATIONS[0], steps=(turn_1, turn_2, turn_3, edited))
    computed = []
    # The second pass finds every prompt whole.
    for replay in (Replay(first), Replay(first), Replay(CONVERSATIONS[1].main_line(1))):
        while (step := replay.step) is not None:
            messages = replay.messages(step)
            longest = max(ledger.cuts(ledger.prompt(messages)))
            before = computed_tokens(server)
            answer = replay.ask_next(server)
            assert answer.cached_tokens == longest, step.name
            assert computed_tokens(server) - before == answer.prompt_tokens - longest, step.name
            ledger.record(messages, answer)
            computed.append(answer.prompt_tokens - answer.cached_tokens)
    assert min(computed[:4]) > 0
    assert computed[4:8] == [0, 0, 0, 0]
    assert 0 < computed[8] < answer.prompt_tokens


def test_restored_from_memory(start_small, truth: Answers, ledger: Ledger) -> None:
    """Each conversation takes one step in turn, and by its next turn the others have needed its pages."""
    server = start_small(truth, "--prefix-cache-memory", TIER)
    replays = [Replay(conversation) for conversation in CONVERSATIONS]
    while any(replay.step is not None for replay in replays):
        for replay in replays:
            if replay.step is not None:
                check_next_and_store(server, replay, ledger)
    assert server.health()["engine"]["fetches"] >= len(replays)
    for replay in replays:
        assert_same(replay.conversation, replay.answers, truth[replay.conversation.name])


def test_restored_from_disk_after_restarts(start_server, tmp_path: Path, truth: Answers, ledger: Ledger) -> None:
    arguments = ["--prefix-cache-disk", str(tmp_path / "tier"), "--prefix-cache-disk-size", TIER]
    replays = [Replay(conversation) for conversation in CONVERSATIONS]
    fetches = []
    # The edit and the branches are in the last life.
    for steps in (2, 4, 8, None):
        server = start_server(*arguments)
        for replay in replays:
            while replay.step is not None and (steps is None or len(replay.answers) < steps):
                check_next_and_store(server, replay, ledger)
        fetches.append(server.health()["engine"]["fetches"])
        assert server.stop() == 0
    assert min(fetches[1:]) >= len(CONVERSATIONS), fetches
    for replay in replays:
        assert_same(replay.conversation, replay.answers, truth[replay.conversation.name])


def test_preempted(start_small, uncached: Server) -> None:
    """Greedy, because a sampled request goes on with another random stream after a preemption."""
    for start in range(0, len(CONVERSATIONS), REPLAYS_AT_ONCE):
        crowd = [long_replies(conversation) for conversation in CONVERSATIONS[start : start + REPLAYS_AT_ONCE]]
        expected = replay_together(uncached, crowd, LONG)
        server = start_small(expected)
        answers = replay_together(server, crowd, LONG)
        assert server.health()["engine"]["preemptions"] > 0
        assert server.stop() == 0
        for conversation in crowd:
            assert_same(conversation, answers[conversation.name], expected[conversation.name])


def check_next(server: Server, replay: Replay, ledger: Ledger, *, recomputed_max: int = 0) -> None:
    """Takes a step alone at its server: what was cached is an endpoint that was left, and the rest was computed."""
    step = replay.step
    assert step is not None
    messages = replay.messages(step)
    prompt = ledger.prompt(messages)
    cuts, least = ledger.cuts(prompt), least_cached(replay, prompt, ledger) - recomputed_max
    before = computed_tokens(server)
    answer = replay.ask_next(server)
    where = f"{replay.conversation.name}, {step.name}: cuts {sorted(cuts)} of {len(prompt)} tokens, at least {least}"
    where += f"; {server.health()['engine']}"
    assert answer.prompt_tokens == len(prompt), where
    assert answer.cached_tokens in cuts, where
    assert answer.cached_tokens >= least, where
    assert computed_tokens(server) - before == answer.prompt_tokens - answer.cached_tokens, where
    ledger.record(messages, answer)


def check_next_and_store(server: Server, replay: Replay, ledger: Ledger) -> None:
    """Takes a step, and waits until the tier has what it left: a slow disk may forget, which is not the point here."""
    before = server.health()["engine"]
    check_next(server, replay, ledger, recomputed_max=NOT_FETCHED_TOKENS)
    deadline = time.monotonic() + STORE_TIMEOUT_S
    while is_storing(before, server.health()["engine"]) and time.monotonic() < deadline:
        time.sleep(0.02)


def is_storing(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether a request is at its end, or checkpoints since `before` are in no tier; what was fetched is made, too."""

    def of(engine: dict[str, Any]) -> int:
        stores = sum(tier["stores"] + tier["store_failures"] for tier in engine["tiers"].values())
        return int(engine["checkpoints_published"] - engine["fetches"] - stores)

    return now["requests_running"] > 0 or of(now) > of(before)


def least_cached(replay: Replay, prompt: Sequence[int], ledger: Ledger) -> int:
    """A turn goes on where the one just before it ended, if its tokens are still the same; others find something."""
    step, newest = replay.step, len(replay.answers) - 1
    if step is None or step.follows is None:
        return 0
    if step.follows != newest:
        return 1
    earlier = replay.messages(replay.conversation.steps[newest])
    consumed = ledger.consumed(earlier, replay.answers[newest])
    return len(consumed) if tuple(prompt[: len(consumed)]) == consumed else 1


def long_replies(conversation: Conversation) -> Conversation:
    start = conversation.main_line(LONG_TURNS)
    steps = tuple(dataclasses.replace(step, output_tokens=LONG_OUTPUT_TOKENS) for step in start.steps)
    return dataclasses.replace(start, steps=steps)


def computed_tokens(server: Server) -> int:
    """Prompt tokens that the server has computed so far."""
    computed: int = server.health()["engine"]["prompt_tokens_computed"]
    return computed
