"""Sampling: draws against the exact filtered distribution, streams, penalties, masks, logprobs, records, finishing."""

import numpy as np
import pytest
from library import U
from sampling import DECODE, INACTIVE, LIVE, REJECTED, F, Launch, distribution, philox, philox_block
from scipy.stats import chi2

EOS, LENGTH = 1, 2


def test_philox_reference_gives_the_published_vectors():
    """Random123's known answers, so that the reference below is the generator that the contract names."""
    assert philox_block([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox_block([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert philox_block([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]) == [
        0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1,
    ]  # fmt: skip


@pytest.mark.parametrize("seed", [0, 1, -1, 0x0123456789ABCDEF, -0x7FFFFFFFFFFFFFFF])
def test_a_draw_is_the_inverse_distribution_at_the_philox_uniform(kernels, seed):
    """Equal logits over V = 2^16 tokens: token i covers ((i) / V, (i + 1) / V]."""
    launch = Launch(kernels, 1, 1, 1 << 16)
    launch.lane(0, 0)
    for counter in [0, 1, 2, 1000, (1 << 32) + 3, (1 << 40) + 5]:
        launch.request(0, seed=seed, counter=counter)
        token = launch.run()[0, 16]
        _, uniform = philox(seed, counter)
        assert token == int(np.ceil(uniform * (1 << 16))) - 1
        assert launch.fields[0, F["counter"]] == counter + 1


def penalized(launch, rng):
    """A histogram with a third of the tokens seen."""
    launch.histogram[0] = rng.integers(0, 3, launch.v) * (rng.random(launch.v) < 0.5)


SETTINGS = [
    {}, {"temperature": 0.3}, {"temperature": 2.5}, {"top_k": 1}, {"top_k": 5}, {"top_k": 40, "temperature": 1.5},
    {"top_k": 1000}, {"top_p": 0.5}, {"top_p": 0.95}, {"top_p": 0.999, "temperature": 3.0}, {"top_p": 0.01},
    {"min_p": 0.1}, {"min_p": 0.02, "temperature": 2.0}, {"top_k": 20, "top_p": 0.95},
    {"top_k": 50, "top_p": 0.8, "min_p": 0.05},
    {"repetition": 1.3}, {"presence": 1.0}, {"frequency": 0.7}, {"repetition": 0.8, "presence": -0.5, "frequency": 0.3},
    {"top_k": 30, "top_p": 0.9, "min_p": 0.01, "repetition": 1.2, "presence": 0.4, "frequency": 0.2,
     "temperature": 0.8},
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(SETTINGS)))
def test_draws_follow_the_exact_filtered_distribution(kernels, index):
    """Chi-square of 16384 draws at a fixed seed; a token outside of the filtered set is never drawn.

    Tokens expected fewer than 8 times are pooled. The level is 1e-4 for each of the 20 sets.
    """
    setting = SETTINGS[index]
    rng = np.random.default_rng(100 + index)
    v, lanes, rounds = [300, 1009, 4096][index % 3], 64, 256
    launch = Launch(kernels, lanes, lanes, v)
    launch.logits[:] = (2 * rng.standard_normal(v)).astype(np.float32)
    penalized(launch, rng)
    launch.histogram[:] = launch.histogram[0]
    for lane in range(lanes):
        launch.request(lane, seed=1000 * index + lane, **setting)
        launch.lane(lane, lane)
    p = distribution(launch, 0, 0)
    counts, histogram = np.zeros(v), launch.histogram.copy()
    for _ in range(rounds):
        launch.histogram[:] = histogram
        np.add.at(counts, launch.run()[:, 16], 1)
    draws = lanes * rounds
    assert counts.sum() == draws
    assert not counts[p == 0].any()
    common = p * draws >= 8
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(p[common], p[~common].sum()) * draws
    kept = expected > 0
    statistic = np.sum((observed[kept] - expected[kept]) ** 2 / expected[kept])
    assert statistic <= chi2.isf(1e-4, max(1, kept.sum() - 1))


@pytest.mark.parametrize("v", [49152, 1000, 17])
@pytest.mark.parametrize(
    "setting", [{}, {"top_k": 7}, {"top_p": 0.9}, {"min_p": 0.2}, {"top_k": 900}, {"top_p": 0.999999}]
)
def test_a_token_inverts_the_float64_distribution(kernels, v, setting):
    """The cumulative distribution around the drawn token brackets the uniform, up to rounding of weights and sums."""
    rng = np.random.default_rng(v)
    launch = Launch(kernels, 1, 1, v)
    launch.lane(0, 0)
    for counter in range(30):
        launch.logits[0] = rng.standard_normal(v) * rng.choice([0.01, 1, 5])
        launch.request(0, seed=77, counter=counter, **setting)
        p = distribution(launch, 0, 0)
        token = launch.run()[0, 16]
        cumulative = np.cumsum(p)
        _, uniform = philox(77, counter)
        tolerance = 64 * U * (1 + np.abs(launch.logits).max())
        assert p[token] > 0
        assert cumulative[token] - p[token] - tolerance <= uniform <= cumulative[token] + tolerance


def test_ties_at_a_threshold_all_stay(kernels):
    """top_k = 1 among four equal best draws each of them, and none else; so does top-p."""
    launch = Launch(kernels, 1, 1, 500)
    launch.lane(0, 0)
    best = {3, 64, 65, 499}
    launch.logits[0] = np.linspace(-1, 0, 500)
    launch.logits[0, sorted(best)] = 4
    for setting in ({"top_k": 1}, {"top_k": 3}, {"top_p": 0.1}, {"top_p": 0.3}):
        launch.request(0, seed=3, **setting)
        assert {int(launch.run()[0, 16]) for _ in range(64)} == best


def test_top_k_of_one_is_the_greatest_logit(kernels):
    """Whatever the temperature."""
    rng = np.random.default_rng(8)
    launch = Launch(kernels, 1, 1, 49152)
    launch.lane(0, 0)
    for temperature in (0.01, 1.0, 50.0):
        launch.logits[0] = rng.standard_normal(49152)
        launch.request(0, seed=9, top_k=1, temperature=temperature)
        assert launch.run()[0, 16] == launch.logits[0].argmax()


def test_a_stream_does_not_depend_on_its_lane_or_the_others(kernels):
    """The same requests alone, packed together and reversed, with one thread and two, give equal streams."""
    rng = np.random.default_rng(10)
    v, requests, steps = 3000, 5, 12
    logits = (3 * rng.standard_normal((steps, requests, v))).astype(np.float32)
    settings = [{}, {"top_p": 0.9}, {"top_k": 50}, {"min_p": 0.01, "frequency": 0.5}, {"presence": 2.0, "top_p": 0.7}]

    def streams(order):
        launch = Launch(kernels, len(order), requests, v)
        tokens = []
        for r in order:
            launch.request(r, seed=40 + r, **settings[r])
        for step in range(steps):
            for lane, r in enumerate(order):
                launch.lane(lane, r)
                launch.logits[lane] = logits[step, r]
            tokens.append(launch.run()[:, 16].copy())
        return dict(zip(order, np.array(tokens).T.tolist(), strict=True)), launch.histogram

    together, _ = streams(list(range(requests)))
    assert len({tuple(stream) for stream in together.values()}) == requests
    for threads in (1, 2):
        kernels.threads(threads)
        assert streams(list(range(requests))[::-1])[0] == together
        for r in range(requests):
            alone, histogram = streams([r])
            assert alone[r] == together[r]
            assert np.array_equal(histogram[r], np.bincount(together[r], minlength=v))
    kernels.threads(2)


def test_bias_and_mask_reach_the_scores(kernels):
    """A bias forbids and forces, a mask allows."""
    launch = Launch(kernels, 1, 1, 700)
    launch.logits[0, 650:] = 10
    launch.request(0, seed=1)
    launch.fields[0, F["bias_count"]] = 2
    launch.bias_tokens[0, :2], launch.bias_values[0, :2] = (699, 5), (-100, 60)
    launch.lane(0, 0)
    assert {int(launch.run()[0, 16]) for _ in range(20)} == {5}
    launch.allow(0, [2, 31, 32, 699])
    launch.lane(0, 0, masked=1)
    assert {int(launch.run()[0, 16]) for _ in range(60)} == {2, 31, 32}
    launch.fields[0, F["bias_count"]] = 0
    assert launch.run()[0, 16] == 699


def test_a_penalty_is_counted_from_the_histogram(kernels):
    """Each allowed token is drawn once, the likeliest first."""
    launch = Launch(kernels, 1, 1, 700)
    launch.logits[0, 699] = 10
    launch.request(0, seed=1, presence=50.0)
    launch.allow(0, [2, 31, 32, 699])
    launch.lane(0, 0, masked=1)
    drawn = [int(launch.run()[0, 16]) for _ in range(4)]
    assert drawn[0] == 699 and sorted(drawn) == [2, 31, 32, 699]


@pytest.mark.parametrize("v", [49152, 1000, 13])
def test_logprobs_are_those_of_the_unprocessed_logits(kernels, v):
    """Within rounding of FP32 weights; alternatives best first, ties by lower id; nothing is written beyond them."""
    rng = np.random.default_rng(v)
    launch = Launch(kernels, 2, 2, v)
    for count in (0, 1, 5, 20):
        launch.logits[:] = np.round(4 * rng.standard_normal((2, v)), 1)
        launch.request(0, seed=2, logprobs=count, temperature=3.0, presence=1.0)
        launch.request(1, seed=2, logprobs=-1)
        launch.lane(0, 0)
        launch.lane(1, 1)
        launch.logprob_tokens[:], launch.logprob_values[:] = -7, np.nan
        record = launch.run()
        reported = min(count, v)
        z = launch.logits[0].astype(np.float64)
        exact = z - z.max() - np.log(np.exp(z - z.max()).sum())
        best = np.lexsort((np.arange(v), -z))[:reported]
        assert record[0, 11] == reported and record[1, 11] == -1
        assert np.array_equal(launch.logprob_tokens[0, 0, :reported], best)
        expected = np.append(exact[record[0, 16]], exact[best])
        found = launch.logprob_values[0, 0, : 1 + reported]
        # A weight errs by its score's rounding and 2 u, a block of 64 sums to within 8 u, and the result rounds.
        assert np.all(np.abs(found - expected) <= 32 * U * (1 + np.abs(expected)))
        assert np.isnan(launch.logprob_values[0, 0, 1 + reported :]).all()
        assert np.isnan(launch.logprob_values[0, 1]).all() and (launch.logprob_tokens[0, 1] == -7).all()


def test_a_record_tells_the_state_after_the_launch(kernels):
    """Sampled, not sampled, empty and rejected lanes; a lane that does not sample changes nothing."""
    launch = Launch(kernels, 4, 4, 100, token_capacity=3)
    for slot in (0, 1, 2):
        launch.request(slot, epoch=10 + slot, top_k=1, counter=6)
        launch.fields[slot, [F["consumed"], F["generated"]]] = 40 + slot, 2
    launch.logits[:, 77] = 1
    launch.lane(0, 2)
    launch.lane(1, 1, sample=0)
    launch.lane(3, 0, status=REJECTED, sample=0)
    launch.frame[0] = 1
    before = launch.fields.copy()
    record = launch.run()
    assert (launch.completion[0] == -7).all()
    zeros = [0, 0, 0, 0]
    assert record[0].tolist() == [12, 2, LIVE, DECODE, 42, 3, 1, 0, 77, 7, 0, -1, *zeros, 77, 0, 0]
    assert record[1].tolist() == [11, 1, LIVE, DECODE, 41, 2, 0, 0, -1, 6, 0, -1, *zeros, 0, 0, 0]
    assert record[2].tolist() == [0, -1, INACTIVE, DECODE, 0, 0, 0, 0, -1, 0, 0, -1, *zeros, 0, 0, 0]
    assert record[3].tolist() == [10, 0, REJECTED, DECODE, 40, 2, 0, 0, -1, 6, 0, -1, *zeros, 0, 0, 0]
    assert np.array_equal(launch.fields[[0, 1, 3]], before[[0, 1, 3]])
    assert launch.histogram.sum() == 1 and launch.histogram[2, 77] == 1


def test_an_end_token_or_the_limit_finishes(kernels):
    """Unless end tokens are ignored; an end token wins over the limit."""
    launch = Launch(kernels, 1, 1, 100, eos=(50, 60))
    launch.lane(0, 0)
    for token, limit, ignore, finish in [
        (60, 9, 0, EOS), (60, 1, 0, EOS), (60, 9, 1, 0), (60, 1, 1, LENGTH), (61, 1, 0, LENGTH), (61, 2, 0, 0),
    ]:  # fmt: skip
        launch.request(0, output_limit=limit, top_k=1)
        launch.fields[0, F["ignore_eos"]] = ignore
        launch.logits[:] = 0
        launch.logits[0, token] = 1
        record = launch.run()
        assert record[0, 7] == launch.fields[0, F["finished"]] == finish
        assert record[0, 16] == record[0, 8] == token


def test_a_lane_with_nothing_to_draw_ends(kernels):
    """A mask that allows no token, and logits that are no numbers; NaN is never drawn."""
    launch = Launch(kernels, 1, 1, 100, eos=(50,))
    launch.request(0)
    launch.lane(0, 0, masked=1)
    assert launch.run()[0, [7, 16]].tolist() == [EOS, 50]
    launch.logits[:] = np.nan
    launch.request(0)
    launch.lane(0, 0)
    assert launch.run()[0, [7, 16]].tolist() == [EOS, 50]
    launch.logits[0, 71] = -3
    launch.request(0)
    assert launch.run()[0, 16] == 71
