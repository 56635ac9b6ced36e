"""Logits of the exported SmolLM2 core: close to exact ones, and the same bits wherever and however they are computed.

Bounds come from the noise of the reference: Transformers' own bf16 against float64 on the same text.
`benchmarks/numerics.py` measures all fifty prompts; its result is kept under benchmarks/results/.
"""

import random

import numpy as np
import pytest

from ignition.checkpoint import open_checkpoint
from scripts.smollm2 import weights
from tests.numerics.measure import encode_prompts, measure
from tests.numerics.replay import Replay

CI_PROMPTS = 6
STEPS = 8


@pytest.fixture
def replay(core):
    """The loaded core; only one is in a process at a time."""
    replay = Replay(core)
    yield replay
    replay.close()


def random_prompt(length, seed):
    draw = random.Random(seed)
    return [draw.randrange(17, 49152) for _ in range(length)]


def run(replay, slot, prompt, *, chunks=None, steps=STEPS):
    """Prefill and decode alone in lane 0: logits [1 + steps, V] and the tokens consumed. The slot is free again."""
    request = replay.admit(slot, prompt)
    logits, tokens = [replay.prefill(request, chunks=chunks)], []
    for _ in range(steps):
        tokens.append(replay.pending(request))
        logits.append(replay.decode([request], capacity=1)[0])
    replay.driver.reset(request)
    return np.stack(logits), tokens


def test_logits_are_as_close_to_exact_as_transformers_bf16(core):
    checkpoint = open_checkpoint(str(weights()))
    evidence = measure(core, checkpoint, encode_prompts(checkpoint, CI_PROMPTS))
    assert evidence.flare.positions == CI_PROMPTS * 65
    assert evidence.flare.median_kl <= 1.25 * evidence.transformers.median_kl
    assert evidence.flare.mean_kl <= 1.25 * evidence.transformers.mean_kl
    assert evidence.flare.top1_agreement >= evidence.transformers.top1_agreement - 0.02


def test_a_slot_changes_no_bit(replay):
    prompt = random_prompt(150, 1)
    first, tokens = run(replay, 0, prompt)
    for slot in range(1, replay.limits.slots):
        other, other_tokens = run(replay, slot, prompt)
        assert np.array_equal(first, other)
        assert tokens == other_tokens


def test_the_split_of_a_prompt_changes_no_bit(replay):
    prompt = random_prompt(200, 2)
    whole, tokens = run(replay, 0, prompt, steps=2)
    for chunks in ([64, 64, 64, 8], [1, 199], [199, 1], [63, 65, 1, 71], [7, 7, 7, 179], [128, 72]):
        split, split_tokens = run(replay, 1, prompt, chunks=chunks, steps=2)
        assert np.array_equal(whole, split), chunks
        assert tokens == split_tokens


@pytest.mark.parametrize(("capacity", "lane"), [(2, 0), (2, 1), (4, 0), (4, 2), (4, 3)])
def test_lanes_and_capacities_change_no_bit(replay, capacity, lane):
    """The same request alone at capacity 1, and beside others that sit out some of its steps."""
    prompt = random_prompt(90, 3)
    alone, _ = run(replay, 0, prompt)
    request = replay.admit(0, prompt)
    beside = [replay.prefill(request)]
    others = [replay.admit(slot, random_prompt(30 * slot, 4 + slot)) for slot in range(1, capacity)]
    for other in others:
        replay.prefill(other)
    for step in range(STEPS):
        present = [other if (step + other.slot) % 3 else None for other in others]
        lanes = [*present[:lane], request, *present[lane:]]
        beside.append(replay.decode(lanes, capacity=capacity)[lane])
    assert np.array_equal(alone, np.stack(beside))


def test_a_step_consumes_the_token_that_it_is_given(replay):
    """The same token gives the same bits, another one gives others: comparisons here can fail."""
    prompt = random_prompt(40, 9)
    free, tokens = run(replay, 0, prompt, steps=1)
    for token, same in ((tokens[0], True), (tokens[0] ^ 1, False)):
        request = replay.admit(1, prompt)
        replay.prefill(request)
        replay.force(request, token)
        assert np.array_equal(replay.decode([request])[0], free[1]) is same
        replay.driver.reset(request)
