"""From logits to scores, and thresholds of filters, for one lane whose vocabulary is divided among programs.

A program holds its part of the vocabulary in registers from start to end. Programs of a lane meet at a counter in
memory and exchange a few numbers there; sums are taken in the order of programs, so no other lane can change a bit.
"""

import triton
import triton.language as tl

from ignition.kernels.triton.fields import FREQUENCY, PRESENCE, REPETITION, REQUEST_PARAMETERS, TEMPERATURE

PIVOTS = tl.constexpr(8)
FARTHEST = tl.constexpr(24.0)
"""The first pivots lie this far below the best score, then ever nearer to it."""


@triton.jit
def meet(counter, met, PROGRAMS: tl.constexpr):
    """The lane's programs wait for each other for the `met`-th time, counted from 0; gives the times."""
    # Every thread's stores come before the arrival, every thread's loads after the last one.
    tl.debug_barrier()
    if PROGRAMS > 1:
        arrived = tl.atomic_add(counter, 1, sem="acq_rel") + 1
        while arrived < (met + 1) * PROGRAMS:
            arrived = tl.atomic_add(counter, 0, sem="acquire")
    tl.debug_barrier()
    return met + 1


@triton.jit
def exchange(mine, buffer, counter, met, PROGRAMS: tl.constexpr, WIDE: tl.constexpr):
    """What every program of the lane has [n]; gives it of all [WIDE, n], zero past the last, and the times met.

    Two halves of the buffer take turns: a program that is late may still read the one while the other is written.
    """
    COUNT: tl.constexpr = mine.shape[0]
    half = buffer + (met % 2) * PROGRAMS * COUNT
    i, p = tl.arange(0, COUNT), tl.arange(0, WIDE)
    tl.store(half + tl.program_id(0) * COUNT + i, mine)
    met = meet(counter, met, PROGRAMS)
    at = half + p[:, None] * COUNT + i[None, :]
    return tl.load(at, mask=(p < PROGRAMS)[:, None], other=0, cache_modifier=".cg"), met


@triton.jit
def ordered(x):
    """A float's bits as an integer of the same order; -0 and 0 are one."""
    bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def processed(
    logits, v, V, slot, parameters, histogram, bias_tokens, bias_values, bias_count, mask_words, masked
):  # fmt: skip
    """Scores of tokens v: bias, penalties, grammar mask, temperature. What can never be drawn is -inf."""
    own = parameters + slot * REQUEST_PARAMETERS
    z = logits
    for i in range(bias_count):
        z += tl.where(v == tl.load(bias_tokens + i), tl.load(bias_values + i), 0.0)
    repetition, presence = tl.load(own + REPETITION), tl.load(own + PRESENCE)
    frequency = tl.load(own + FREQUENCY)
    if (repetition != 1) | (presence != 0) | (frequency != 0):
        count = tl.load(histogram + slot * V + v, mask=v < V, other=0)
        lower = tl.where(z > 0, tl.div_rn(z, repetition), z * repetition) - presence
        z = tl.where(count > 0, lower - frequency * count.to(tl.float32), z)
    if masked != 0:
        word = tl.load(mask_words + v // 32, mask=v < V, other=0).to(tl.int32, bitcast=True)
        z = tl.where((word >> (v % 32)) & 1 != 0, z, float("-inf"))
    z = tl.div_rn(z, tl.load(own + TEMPERATURE))
    return tl.where((z == z) & (v < V), z, float("-inf"))


@triton.jit
def tally(keys, weights, pivots):
    """How many keys reach each of PIVOTS pivots, and the sum of their weights.

    A thread sums its own eight keys for one pivot after another, so that they fit in its registers.
    """
    own_keys, own_weights = tl.reshape(keys, (keys.shape[0] // 8, 8)), tl.reshape(weights, (keys.shape[0] // 8, 8))
    counts, amounts = (), ()
    for j in tl.static_range(PIVOTS):
        reaching = own_keys >= tl.sum(tl.where(tl.arange(0, PIVOTS) == j, pivots, 0), 0)
        counts = counts + (tl.sum(reaching.to(tl.float32), 1),)
        amounts = amounts + (tl.sum(tl.where(reaching, own_weights, 0.0), 1),)
    return tl.sum(in_columns(counts), 0), tl.sum(in_columns(amounts), 0)


@triton.jit
def in_columns(c):
    """Eight vectors as the columns of one tile."""
    even = tl.join(tl.join(c[0], c[4]), tl.join(c[2], c[6]))
    odd = tl.join(tl.join(c[1], c[5]), tl.join(c[3], c[7]))
    return tl.reshape(tl.join(even, odd), (c[0].shape[0], PIVOTS))


@triton.jit
def find_threshold(
    keys, weights, low, maximum, wanted, BY_COUNT: tl.constexpr, buffer, counter, met, PROGRAMS: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """The largest key that enough reaches of the keys from `low` on: `wanted` of them, or that share of their weight.

    Every key that reaches the result stays, ties included. Each round narrows [low, high) to one of PIVOTS parts, and
    ends early when a single key lies in it: then low keeps what that key would.
    """
    i = tl.arange(0, PIVOTS)
    best = ordered(maximum).to(tl.int64)
    low, high = low.to(tl.int64), best + 1
    distance = FARTHEST * tl.exp2(-1.2 * i.to(tl.float32))
    pivot = tl.where(i == 0, low, tl.maximum(ordered(maximum - distance).to(tl.int64), low))
    goal = tl.full((), 0, tl.float64)
    inside = tl.full((), 2, tl.float64)
    fewest, most = tl.full((), 0, tl.float64), tl.full((), 1e18, tl.float64)
    while (high - low > 1) & (inside > 1):
        counts, amounts = tally(keys, weights, pivot.to(tl.int32))
        both = tl.interleave(counts, amounts)
        all_parts, met = exchange(both, buffer, counter, met, PROGRAMS, WIDE)
        sums = tl.sum(all_parts.to(tl.float64), 0)
        count, amount = tl.split(tl.reshape(sums, (PIVOTS, 2)))
        if BY_COUNT:
            reached = count >= wanted
        else:
            # The first pivot of the first round is the lowest key, so what reaches it is all there is.
            goal = tl.where(goal == 0, wanted * tl.max(amount, 0), goal)
            reached = amount >= goal
        most = tl.minimum(most, tl.min(tl.where(reached, count, most), 0))
        fewest = tl.maximum(fewest, tl.max(tl.where(reached, fewest, count), 0))
        # The lowest key counts as reached: where too few are left, all stay.
        high = tl.min(tl.where(reached | (i == 0), high, pivot), 0)
        low = tl.max(tl.where(reached, pivot, low), 0)
        inside = most - fewest
        step = tl.maximum(tl.cdiv(high - low, PIVOTS), 1)
        pivot = tl.minimum(low + i * step, high - 1)
    return low.to(tl.int32), met
