"""Linear layers, the vocabulary projection, the embedding, copies and packing, against float64 and themselves."""

import numpy as np
import pytest
from library import U, aligned, bf16, guarded, half_ulp, pack_reference, wide

LIVE, SAMPLE = 1, 1


def random_weights(rng, n, k):
    """bf16[n, k] with rows of differing sizes."""
    return bf16(rng.standard_normal((n, k)) * rng.uniform(0.01, 1, (n, 1)))


def linear(kernels, x, packed, bias, n):
    """y of one call, from scratch that holds NaN."""
    t, k = x.shape
    y = np.full((t, n), 0xFFFF, np.uint16)
    kernels.call("linear", x, packed, bias, y, kernels.scratch("linear", t, n, k), t, n, k)
    return y


@pytest.mark.parametrize(("n", "k"), [(16, 2), (33, 576), (1, 1), (192, 577), (100, 31), (47, 64)])
def test_pack_is_the_documented_layout(kernels, n, k):
    """Whole and in parts, over a destination that held garbage."""
    w = random_weights(np.random.default_rng(n), n, k)
    expected = pack_reference(w)
    for part in (n, 16, 32):
        packed = np.full(expected.shape, 0xFFFF, np.uint16)
        for first in range(0, n, part):
            count = min(part, n - first)
            kernels.call("pack", w[first : first + count].copy(), packed, n, k, first, count)
        assert np.array_equal(packed, expected)


SHAPES = [(16, 16), (576, 576), (192, 577), (100, 31), (1, 1), (65, 1536), (47, 3), (3072, 64)]


@pytest.mark.parametrize(("n", "k"), SHAPES)
@pytest.mark.parametrize("with_bias", [False, True])
def test_linear_is_within_the_bound_of_its_sum(kernels, n, k, with_bias):
    """A sum of K products in FP32 errs by at most K u sum|x w| (one more term for the bias), rounding by half a bit.

    A BF16 dot product flushes subnormals and rounds each product once more: 2 K u covers it.
    """
    rng = np.random.default_rng(n * k)
    w = random_weights(rng, n, k)
    bias = bf16(rng.standard_normal(n)) if with_bias else None
    for t in [*range(1, 20), 31, 64, 70]:
        x = bf16(rng.standard_normal((t, k)))
        y = wide(linear(kernels, x, pack_reference(w), bias, n))
        added = wide(bias) if with_bias else 0.0
        exact = wide(x) @ wide(w).T + added
        size = np.abs(wide(x)) @ np.abs(wide(w)).T + np.abs(added)
        bound = 2 * (k + 1) * U * size
        assert np.all(np.abs(y - exact) <= bound + half_ulp(exact) + 1e-38)


@pytest.mark.parametrize(("n", "k"), [(576, 576), (200, 131), (65, 1536)])
def test_linear_rows_depend_on_nothing_but_themselves(kernels, n, k):
    """Equal bits for one row, few rows and tiles, at any place, among NaN rows, with one thread and two."""
    rng = np.random.default_rng(k)
    packed = pack_reference(random_weights(rng, n, k))
    bias = bf16(rng.standard_normal(n))
    x = bf16(rng.standard_normal((64, k)))
    alone = np.concatenate([linear(kernels, x[t : t + 1], packed, bias, n) for t in range(64)])
    for threads in (1, 2):
        kernels.threads(threads)
        for t in (2, 3, 4, 5, 6, 7, 17, 48, 64):
            assert np.array_equal(linear(kernels, x[:t], packed, bias, n), alone[:t])
            shifted = linear(kernels, np.ascontiguousarray(x[::-1][:t]), packed, bias, n)
            assert np.array_equal(shifted, alone[::-1][:t])
        poisoned = np.full((9, k), 0x7FC0, np.uint16)
        poisoned[4] = x[0]
        assert np.array_equal(linear(kernels, poisoned, packed, bias, n)[4], alone[0])
    kernels.threads(2)


@pytest.mark.parametrize(("n", "k"), [(47, 3), (100, 31), (33, 577), (16, 48)])
def test_linear_reads_nothing_past_its_operands(kernels, n, k):
    """Rows and weights that end at forbidden memory, at every count of rows that a tile may have."""
    rng = np.random.default_rng(n)
    w, bias = random_weights(rng, n, k), bf16(rng.standard_normal(n))
    for t in (1, 3, 5, 16, 17, 33, 49):
        x = bf16(rng.standard_normal((t, k)))
        expected = linear(kernels, x, pack_reference(w), bias, n)
        assert np.array_equal(linear(kernels, guarded(x), guarded(pack_reference(w)), guarded(bias), n), expected)


def test_linear_has_one_answer_for_extreme_values(kernels):
    """Subnormal, huge, negative zero and infinite inputs: equal bits alone, in few rows and in tiles."""
    rng = np.random.default_rng(3)
    n, k, t = 65, 77, 64
    special = np.array([0x0000, 0x8000, 0x0001, 0x807F, 0x0080, 0x7F7F, 0xFF7F, 0x3F80, 0xBF80, 0x0100], np.uint16)
    x = np.where(rng.random((t, k)) < 0.5, special[rng.integers(0, 10, (t, k))], bf16(rng.standard_normal((t, k))))
    x[5, 3], x[6, 76], x[7] = 0x7F80, 0xFF80, 0x8000
    w = np.where(rng.random((n, k)) < 0.2, special[rng.integers(0, 10, (n, k))], random_weights(rng, n, k))
    packed = pack_reference(w.astype(np.uint16))
    alone = np.concatenate([linear(kernels, x[i : i + 1], packed, None, n) for i in range(t)])
    for rows in (2, 4, 16, 17, 32, 33, 64):
        assert np.array_equal(linear(kernels, x[:rows], packed, None, n), alone[:rows])


def vocabulary(kernels, h, packed, lanes, v):
    """Logits of one call over a buffer of NaN."""
    logits = np.full((len(h), v), np.nan, np.float32)
    kernels.call("vocabulary", h, packed, logits, lanes, len(h), v, h.shape[1])
    return logits


@pytest.mark.parametrize(("v", "k"), [(1000, 64), (49, 33), (4099, 576)])
def test_vocabulary_gives_the_logits_of_sampling_lanes_alone(kernels, v, k):
    """Within the bound of a sum of K products, equal for any set of other lanes; other rows keep what they held."""
    rng = np.random.default_rng(v)
    w = random_weights(rng, v, k)
    packed = pack_reference(w)
    for b in (1, 2, 3, 4, 7, 70):
        h = bf16(rng.standard_normal((b, k)))
        lanes = np.zeros((b, 4), np.int64)
        lanes[:, 1] = rng.integers(0, 3, b)
        lanes[:, 2] = rng.integers(0, 2, b)
        lanes[0, 1:3] = LIVE, SAMPLE
        chosen = (lanes[:, 1] == LIVE) & (lanes[:, 2] == SAMPLE)
        logits = vocabulary(kernels, h, packed, lanes, v)
        assert np.isnan(logits[~chosen]).all()
        exact = wide(h) @ wide(w).T
        bound = 2 * k * U * (np.abs(wide(h)) @ np.abs(wide(w)).T) + 1e-38
        assert np.all(np.abs(logits - exact)[chosen] <= bound[chosen])
        alone = vocabulary(kernels, h[:1].copy(), packed, lanes[:1].copy(), v)
        assert np.array_equal(alone[0], logits[0])


@pytest.mark.parametrize(("v", "k"), [(1000, 64), (49, 33)])
def test_embedding_gathers_rows_exactly(kernels, v, k):
    """A padding row gives zeros."""
    rng = np.random.default_rng(k)
    w = random_weights(rng, v, k)
    for t in (1, 5, 70):
        tokens = rng.integers(0, v, t)
        slots = rng.integers(-1, 3, t)
        y = np.full((t, k), 0xFFFF, np.uint16)
        kernels.call("embedding", tokens, slots, pack_reference(w), y, t, v, k)
        assert np.array_equal(y, np.where(slots[:, None] < 0, 0, w[tokens]))


def test_a_copy_has_the_same_bytes(kernels):
    """And no byte more."""
    x = np.random.default_rng(0).integers(0, 256, 1001, np.uint8)
    y = np.zeros(1003, np.uint8)
    kernels.call("copy", x, y, 1001)
    assert np.array_equal(y[:1001], x) and not y[1001:].any()


def test_few_rows_need_no_scratch(kernels):
    """The vocabulary projection has none to give."""
    assert len(kernels.scratch("linear", 4, 576, 576)) == 0
    assert aligned(8).ctypes.data % 64 == 0
