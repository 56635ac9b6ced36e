"""Paged attention and KV writes against float64 and against themselves: any split of work gives equal bits."""

import numpy as np
import pytest
from library import U, aligned, bf16, half_ulp, wide

PAGE = 64


class Cache:
    """Pages of one layer between guard bytes, for slots whose page tables are shuffled; unmapped memory is NaN."""

    def __init__(self, rng, kernels, hk, d, slots=3, width=6):
        """`slots` contexts of `width` pages each."""
        self.kernels, self.hk, self.d, self.width = kernels, hk, d, width
        self.segment = hk * d * PAGE * 2
        self.key_offset, self.value_offset = 64, 64 + self.segment + 128
        self.stride = self.value_offset + self.segment + 64
        pages = slots * width + 2
        self.pages = aligned(pages * self.stride)
        self.table = rng.permutation(pages)[: slots * width].reshape(slots, width).astype(np.int32)

    def write(self, k, v, slots, positions):
        """One KV write of rows."""
        self.kernels.call(
            "kv_write", k, v, slots, positions, self.table, self.pages, len(k), self.hk, self.d, self.width,
            self.stride, self.key_offset, self.value_offset,
        )  # fmt: skip

    def attend(self, q, slots, positions, scale, window=0, scratch_bytes=None):
        """y of one call; scratch for a whole context unless told."""
        t, hq, d = q.shape
        scratch = self.kernels.scratch("attention", t, hq, d, self.width * PAGE)
        y = np.full(q.shape, 0xFFFF, np.uint16)
        self.kernels.call(
            "attention", q, slots, positions, self.table, self.pages, y, scratch, t, hq, self.hk, d, self.width,
            self.stride, self.key_offset, self.value_offset, scale, window,
            len(scratch) if scratch_bytes is None else scratch_bytes,
        )  # fmt: skip
        return y

    def stored(self, slot, count):
        """The keys and values of a slot's first tokens, read back by the documented layout."""
        keys, values = [], []
        for page in self.table[slot, : -(-count // PAGE)]:
            raw = self.pages[page * self.stride : (page + 1) * self.stride]
            k = raw[self.key_offset : self.key_offset + self.segment].view(np.uint16)
            v = raw[self.value_offset : self.value_offset + self.segment].view(np.uint16)
            keys.append(k.reshape(self.hk, self.d // 2, PAGE, 2).transpose(2, 0, 1, 3).reshape(PAGE, self.hk, self.d))
            values.append(v.reshape(self.hk, PAGE // 2, self.d, 2).transpose(1, 3, 0, 2).reshape(PAGE, self.hk, self.d))
        return np.concatenate(keys)[:count], np.concatenate(values)[:count]


def reference(q, k, v, positions, scale, window):
    """Float64 attention of rows over one slot's keys, and the bound of an FP32 one.

    Scores err by D u sum|q k| (twice for BF16 dot products) and the scale's rounding, so a weight errs relatively by
    twice that; the exponential and sums over n keys add (2 n + 16) u. A value is a convex combination, so its error is
    that of the weights times the sizes of what they multiply.
    """
    q, k, v = wide(q), wide(k), wide(v)
    group = q.shape[1] // k.shape[1]
    y, bound = np.zeros_like(q), np.zeros_like(q)
    for t, position in enumerate(positions):
        first = max(0, position - window + 1) if window else 0
        for h in range(q.shape[1]):
            keys, values = k[first : position + 1, h // group], v[first : position + 1, h // group]
            s = keys @ q[t, h] * scale
            error = (2 * q.shape[2] + 2) * U * scale * (np.abs(keys) @ np.abs(q[t, h]))
            p = np.exp(s - s.max())
            p /= p.sum()
            y[t, h] = p @ values
            relative = 2 * error.max() + (2 * len(keys) + 16) * U
            bound[t, h] = 2 * relative * (p @ np.abs(values))
    return y, bound


CASES = [
    (9, 3, 64, 0), (4, 4, 32, 0), (8, 2, 128, 0), (7, 1, 64, 0), (14, 2, 96, 0), (9, 3, 64, 100), (16, 1, 80, 70),
    (2, 2, 256, 3),
]  # fmt: skip


@pytest.mark.parametrize(("hq", "hk", "d", "window"), CASES)
def test_prefill_is_within_its_bound_and_decode_and_chunks_are_its_bits(kernels, hq, hk, d, window):
    """A prompt at once, in chunks, token by token, with one thread and two, with and without splitting keys."""
    rng = np.random.default_rng(hq * d + window)
    count, slot, scale = 261, 1, float(np.float32(d**-0.5))
    cache = Cache(rng, kernels, hk, d)
    k, v = (bf16(rng.standard_normal((count, hk, d))) for _ in range(2))
    q = bf16(2 * rng.standard_normal((count, hq, d)))
    slots, positions = np.full(count, slot), np.arange(count)
    cache.write(k, v, slots, positions)
    assert all(np.array_equal(a, b) for a, b in zip(cache.stored(slot, count), (k, v), strict=True))

    whole = cache.attend(q, slots, positions, scale, window)
    exact, bound = reference(q, k, v, positions, scale, window)
    assert np.all(np.abs(wide(whole) - exact) <= bound + half_ulp(exact) + 1e-30)

    for threads in (1, 2):
        kernels.threads(threads)
        assert np.array_equal(cache.attend(q, slots, positions, scale, window), whole)
        for size in (1, 7, 16, 100):
            starts = range(0, count, size) if size > 1 else [0, 1, 63, 64, 65, 127, 128, 200, 255, 256, 260]
            for start in starts:
                part = slice(start, start + size)
                rows = [array[part].copy() for array in (q, slots, positions)]
                for scratch_bytes in (None, 0):
                    assert np.array_equal(cache.attend(*rows, scale, window, scratch_bytes), whole[part])
    kernels.threads(2)


def test_lanes_of_a_decode_do_not_touch_each_other(kernels):
    """Lanes of several slots at several lengths, with empty lanes between, give each lane's own bits."""
    rng = np.random.default_rng(5)
    hq, hk, d = 9, 3, 64
    cache = Cache(rng, kernels, hk, d)
    lengths = {0: 17, 1: 300, 2: 64}
    for slot, count in lengths.items():
        k, v = (bf16(rng.standard_normal((count, hk, d))) for _ in range(2))
        cache.write(k, v, np.full(count, slot), np.arange(count))
    q = bf16(rng.standard_normal((5, hq, d)))
    slots = np.array([1, -1, 0, 2, -1])
    positions = np.array([lengths[s] - 1 if s >= 0 else 0 for s in slots])
    for threads in (1, 2):
        kernels.threads(threads)
        for scratch_bytes in (None, 0):
            y = cache.attend(q, slots, positions, 0.125, 0, scratch_bytes)
            for i, slot in enumerate(slots):
                if slot < 0:
                    assert not y[i].any()
                else:
                    one = cache.attend(q[i : i + 1].copy(), slots[i : i + 1].copy(), positions[i : i + 1].copy(), 0.125)
                    assert np.array_equal(one[0], y[i])
    kernels.threads(2)


def test_what_lies_in_future_keys_never_matters(kernels):
    """NaN and infinite keys and values behind a row's position, in its page and in its tile, change nothing."""
    rng = np.random.default_rng(6)
    hq, hk, d, count = 6, 2, 64, 140
    cache = Cache(rng, kernels, hk, d)
    k, v = (bf16(rng.standard_normal((count, hk, d))) for _ in range(2))
    q = bf16(rng.standard_normal((count, hq, d)))
    slots, positions = np.zeros(count, np.int64), np.arange(count)
    cache.write(k, v, slots, positions)
    clean = cache.attend(q, slots, positions, 0.125)
    for first in (130, 70):  # From the back: a row may see no poison but the newest.
        for poison in (0x7FC0, 0x7F80, 0xFF80):
            bad = np.full((count - first, hk, d), poison, np.uint16)
            cache.write(bad, bad, slots[first:].copy(), positions[first:].copy())
            assert np.array_equal(cache.attend(q, slots, positions, 0.125)[:first], clean[:first])


def test_rows_without_a_slot_or_a_page_write_nothing(kernels):
    """A padding row, and a row whose page is unmapped."""
    rng = np.random.default_rng(7)
    cache = Cache(rng, kernels, 2, 32)
    cache.table[2, 1] = -1
    before = cache.pages.copy()
    k = bf16(rng.standard_normal((3, 2, 32)))
    cache.write(k, k, np.array([-1, 2, 2]), np.array([0, 64, 127]))
    assert np.array_equal(cache.pages, before)
