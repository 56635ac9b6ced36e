"""Sampling: the same tokens, records, fields and counts as the host's from the same seeds, and tests of its own."""

import numpy as np
import pytest
from sampling import Launch
from test_sample import (  # noqa: F401
    test_a_draw_is_the_inverse_distribution_at_the_philox_uniform,
    test_a_lane_with_nothing_to_draw_ends,
    test_a_record_tells_the_state_after_the_launch,
    test_an_end_token_or_the_limit_finishes,
    test_bias_and_mask_reach_the_scores,
)

SETTINGS = [
    {}, {"temperature": 0.3}, {"top_k": 1}, {"top_k": 7}, {"top_k": 900, "temperature": 1.5}, {"top_k": 5000},
    {"top_p": 0.5}, {"top_p": 0.95}, {"top_p": 0.999, "temperature": 3.0}, {"top_p": 0.01}, {"min_p": 0.1},
    {"top_k": 20, "top_p": 0.95}, {"top_k": 50, "top_p": 0.8, "min_p": 0.05}, {"repetition": 1.3},
    {"top_k": 30, "top_p": 0.9, "min_p": 0.01, "repetition": 1.2, "presence": 0.4, "frequency": 0.2},
]  # fmt: skip
STEPS = 6
LOGPROB_ERROR = 2e-6
"""Two FP32 exponentials of 2 ulp, and sums in another order, of log-probabilities down to -16."""


@pytest.mark.parametrize("v", [1009, 17])
@pytest.mark.parametrize("index", range(len(SETTINGS)))
def test_tokens_are_the_hosts(host, kernels, index, v):
    """Random logits and penalized tokens, some steps of one stream beside an empty lane."""
    launches = [Launch(library, 2, 2, v, eos=(3, 5)) for library in (host, kernels)]
    for launch in launches:
        rng = np.random.default_rng(index)
        launch.logits[0] = (3 * rng.standard_normal(v)).astype(np.float32)
        launch.histogram[1] = rng.integers(0, 3, v)
        launch.request(1, seed=12345 + index, logprobs=index % 4 - 1, **SETTINGS[index])
        launch.lane(0, 1)
    ours, hosts = launches[1], launches[0]
    for _ in range(STEPS):
        for launch in launches:
            launch.run()
        for name in ("completion", "fields", "histogram", "logprob_tokens"):
            assert np.array_equal(getattr(ours, name), getattr(hosts, name)), name
        assert np.allclose(ours.logprob_values, hosts.logprob_values, rtol=0, atol=LOGPROB_ERROR, equal_nan=True)


def test_ties_at_a_threshold_all_stay(kernels):
    """Four equal best logits: each can be drawn, and none else, whatever the filter would leave of them."""
    launch = Launch(kernels, 1, 1, 500)
    launch.lane(0, 0)
    best = {3, 64, 65, 499}
    launch.logits[0] = np.linspace(-1, 0, 500)
    launch.logits[0, sorted(best)] = 4
    drawn = set()
    for setting in ({"top_k": 1}, {"top_k": 3}, {"top_p": 0.1}, {"top_p": 0.3}):
        launch.request(0, seed=3, **setting)
        drawn |= {int(launch.run()[0, 16]) for _ in range(6)}
    assert drawn == best
