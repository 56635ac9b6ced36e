"""Sampling: one token a live lane, and the completion record of every lane, in one kernel.

A lane's vocabulary is divided among programs that all run at the same time (a cooperative launch) and meet between
steps. Its draw is a function of its logits, its request's state, its own Philox counter and the number of programs,
which follows from the capacity.
"""

import torch
import triton
import triton.language as tl

from ignition.kernels.triton.fields import (
    BIAS_COUNT,
    COMPLETION_FIELDS,
    COMPLETION_LOGPROB_COUNT,
    COMPLETION_TOKEN_COUNT,
    COUNTER,
    FINISH_EOS,
    FINISH_LENGTH,
    FINISHED,
    GENERATED,
    IGNORE_EOS,
    LANE_FIELDS,
    LANE_MASKED,
    LANE_SAMPLE,
    LANE_SLOT,
    LANE_STATUS,
    LOGPROBS,
    MIN_P,
    OUTPUT_LIMIT,
    PENDING,
    REQUEST_FIELDS,
    REQUEST_PARAMETERS,
    SEED,
    STATUS_LIVE,
    TOP_K,
    TOP_P,
)
from ignition.kernels.triton.launch import INTERPRETED, wait_for_previous
from ignition.kernels.triton.records import write_record
from ignition.kernels.triton.scores import PIVOTS, exchange, find_threshold, ordered, processed

NOTHING = tl.constexpr(-(2**63))
"""Below the key of every token."""

LISTED = tl.constexpr(32)
"""Alternatives that a program offers for the log-probabilities, at least logprobs_max of them."""


@triton.jit
def uniform(seed, counter):
    """The uniform in (0, 1] of a request's sample: block `counter` of subsequence 0 under key `seed`, first word."""
    zero = tl.zeros((1,), tl.uint32)
    low, high = zero + (counter & 0xFFFFFFFF).to(tl.uint32), zero + ((counter >> 32) & 0xFFFFFFFF).to(tl.uint32)
    word, _, _, _ = tl.philox(seed, low, high, zero, zero)
    return tl.sum(word.to(tl.float64), 0) * 2.0**-32 + 2.0**-33


@triton.jit
def draw(weights, v, below, target, V):
    """The first token at which the sum of weights in order of id reaches the target, the last if rounding hides it."""
    sums = below + tl.cumsum(weights.to(tl.float64), 0)
    found = tl.min(tl.where((weights > 0) & (sums >= target), v, V), 0)
    return tl.where(found < V, found, tl.max(tl.where(weights > 0, v, 0), 0)).to(tl.int64)


@triton.jit
def list_best(logits, v, V, wanted, to):
    """Writes the program's most likely tokens, best first, ties by lower id, as keys of that order."""
    own = tl.where(v < V, (ordered(logits).to(tl.int64) << 32) | (0xFFFFFFFF - v.to(tl.int64)), NOTHING)
    for i in range(wanted):
        best = tl.max(own, 0)
        tl.store(to + i, best)
        own = tl.where(own == best, NOTHING, own)


@triton.jit
def report(
    logits, lists, wanted, token, maximum, log_sum, tokens_to, values_to, V, PROGRAMS: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    """Writes the sampled token's log-probability, then the alternatives; gives how many."""
    tl.store(values_to, (tl.load(logits + token).to(tl.float64) - maximum.to(tl.float64) - log_sum).to(tl.float32))
    p, i = tl.arange(0, WIDE), tl.arange(0, LISTED)
    mask = (p < PROGRAMS)[:, None] & (i < wanted)[None, :]
    keys = tl.load(lists + p[:, None] * LISTED + i[None, :], mask=mask, other=NOTHING, cache_modifier=".cg")
    reported = tl.minimum(wanted, V)
    for n in range(reported):
        best = tl.max(tl.max(keys, 1), 0)
        other = 0xFFFFFFFF - (best & 0xFFFFFFFF)
        value = tl.load(logits + other).to(tl.float64) - maximum.to(tl.float64) - log_sum
        tl.store(tokens_to + n, other)
        tl.store(values_to + 1 + n, value.to(tl.float32))
        keys = tl.where(keys == best, NOTHING, keys)
    return reported


@triton.jit
def advance(fields, counts, token, eos_tokens, eos_count, EOS_WIDE: tl.constexpr):
    """Makes the token pending, counts it, and finishes the request at an end token or the output limit."""
    tl.store(counts + token, tl.load(counts + token) + 1)
    generated = tl.load(fields + GENERATED) + 1
    tl.store(fields + PENDING, token)
    tl.store(fields + COUNTER, tl.load(fields + COUNTER) + 1)
    tl.store(fields + GENERATED, generated)
    i = tl.arange(0, EOS_WIDE)
    ended = tl.max(((tl.load(eos_tokens + i, mask=i < eos_count, other=-1)) == token).to(tl.int32), 0) > 0
    if ended & (tl.load(fields + IGNORE_EOS) == 0):
        tl.store(fields + FINISHED, FINISH_EOS)
    elif generated >= tl.load(fields + OUTPUT_LIMIT):
        tl.store(fields + FINISHED, FINISH_LENGTH)
    # The record is read from the fields by other threads.
    tl.debug_barrier()


@triton.jit
def sample_lane(
    logits, lanes, request_fields, request_parameters, histogram, bias_tokens, bias_values, grammar_masks, eos_tokens,
    frame, completion, logprob_tokens, logprob_values, counters, rounds, finals, lists, V, C, bias_max, mask_words,
    eos_count, frame_lanes, family, TOKEN_CAPACITY: tl.constexpr, LOGPROBS_MAX: tl.constexpr, TILE: tl.constexpr,
    PROGRAMS: tl.constexpr, WIDE: tl.constexpr, EOS_WIDE: tl.constexpr, RECORD_WIDE: tl.constexpr,
):  # fmt: skip
    """One part of one lane's vocabulary."""
    wait_for_previous()
    program, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    lane = lanes + b * LANE_FIELDS
    slot, status = tl.load(lane + LANE_SLOT), tl.load(lane + LANE_STATUS)
    known = (slot >= 0) & (slot < C)
    fields = request_fields + slot * REQUEST_FIELDS
    place = tl.load(frame) * frame_lanes + b
    record = completion + place * (COMPLETION_FIELDS + TOKEN_CAPACITY)
    if (status == STATUS_LIVE) & (tl.load(lane + LANE_SAMPLE) != 0):
        own = logits + b * V
        wanted = tl.load(fields + LOGPROBS)
        listed = tl.minimum(wanted, LOGPROBS_MAX).to(tl.int32)
        lists += b * PROGRAMS * LISTED
        token, winner, maximum, log_sum = choose(
            own, slot, fields, request_parameters, histogram, bias_tokens + slot * bias_max,
            bias_values + slot * bias_max, grammar_masks + b * mask_words, tl.load(lane + LANE_MASKED), eos_tokens,
            eos_count, counters + b, rounds + b * 4 * PIVOTS * PROGRAMS, finals + b * 4 * PROGRAMS, lists, listed,
            wanted >= 0, V, TILE, PROGRAMS, WIDE,
        )  # fmt: skip
        if program == winner:
            reported = tl.full((), -1, tl.int64)
            if wanted >= 0:
                reported = report(
                    own, lists, listed, token, maximum, log_sum, logprob_tokens + place * LOGPROBS_MAX,
                    logprob_values + place * (1 + LOGPROBS_MAX), V, PROGRAMS, WIDE,
                ).to(tl.int64)  # fmt: skip
            advance(fields, histogram + slot * V, token, eos_tokens, eos_count, EOS_WIDE)
            write_record(record, COMPLETION_FIELDS + TOKEN_CAPACITY, RECORD_WIDE, slot, status, family, fields, known)
            tl.store(record + COMPLETION_LOGPROB_COUNT, reported)
            tl.store(record + COMPLETION_TOKEN_COUNT, 1)
            tl.store(record + COMPLETION_FIELDS, token)
    elif program == 0:
        write_record(record, COMPLETION_FIELDS + TOKEN_CAPACITY, RECORD_WIDE, slot, status, family, fields, known)


@triton.jit
def choose(
    logits, slot, fields, parameters, histogram, bias_tokens, bias_values, mask_words, masked, eos_tokens, eos_count,
    counter, rounds, finals, lists, listed, reports, V, TILE: tl.constexpr, PROGRAMS: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """The lane's token, the program that has drawn it, and the logits' maximum and log-sum where they are reported.

    Where nothing can be drawn (a mask that allows no token, or logits that are no numbers) it is an end token.
    """
    program = tl.program_id(0)
    v = program * TILE + tl.arange(0, TILE)
    raw = tl.load(logits + v, mask=v < V, other=float("-inf"))
    scores = processed(
        raw, v, V, slot, parameters, histogram, bias_tokens, bias_values, tl.load(fields + BIAS_COUNT), mask_words,
        masked,
    )  # fmt: skip
    two = tl.arange(0, 2)
    pair = tl.where(two == 0, tl.max(scores, 0), tl.max(tl.where(raw == raw, raw, float("-inf")), 0))
    pairs, met = exchange(pair, rounds, counter, 0, PROGRAMS, WIDE)
    present = (tl.arange(0, WIDE) < PROGRAMS)[:, None]
    best = tl.max(tl.where(present, pairs, float("-inf")), 0)
    maximum = tl.max(tl.where(two == 0, best, float("-inf")), 0)
    raw_maximum = tl.max(tl.where(two == 1, best, float("-inf")), 0)
    weights = tl.where(scores > float("-inf"), tl.exp(scores - maximum), 0.0)
    if maximum > float("-inf"):
        kept, met = filtered(
            scores, weights, maximum, fields, parameters + slot * REQUEST_PARAMETERS, V, rounds, counter, met,
            PROGRAMS, WIDE,
        )  # fmt: skip
        weights = tl.where(kept, weights, 0.0)
    total_raw = tl.full((), 0, tl.float64)
    if reports:
        total_raw = tl.sum(tl.exp(raw - raw_maximum).to(tl.float64), 0)
        list_best(raw, v, V, listed, lists + program * LISTED)
    pair64 = tl.where(two == 0, tl.sum(weights.to(tl.float64), 0), total_raw)
    ends, met = exchange(pair64, finals, counter, met, PROGRAMS, WIDE)
    p = tl.arange(0, WIDE)
    mine = tl.sum(tl.where((two == 0)[None, :], ends, 0.0), 1)
    log_sum = tl.log(tl.sum(tl.sum(tl.where((two == 1)[None, :], ends, 0.0), 1), 0))
    sums = tl.cumsum(mine, 0)
    total = tl.max(sums, 0)
    target = uniform(tl.load(fields + SEED), tl.load(fields + COUNTER)) * total
    found = tl.min(tl.where((mine > 0) & (sums >= target), p, WIDE), 0)
    winner = tl.where(found < WIDE, found, tl.max(tl.where(mine > 0, p, 0), 0))
    below = tl.sum(tl.where(p == winner, sums - mine, 0.0), 0)
    token = tl.load(eos_tokens, mask=eos_count > 0, other=0)
    if total > 0:
        token = draw(weights, v, below, target, V)
    return token, winner, raw_maximum, log_sum


@triton.jit
def filtered(
    scores, weights, maximum, fields, parameters, V, rounds, counter, met, PROGRAMS: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    """Whether scores stay after top-k, top-p and min-p."""
    keys = ordered(scores)
    lowest = ordered(tl.full((), float("-inf"), tl.float32)) + 1
    top_k, top_p = tl.load(fields + TOP_K), tl.load(parameters + TOP_P)
    if top_k == 1:
        lowest = ordered(maximum)
    elif (top_k > 0) & (top_k < V):
        lowest, met = find_threshold(
            keys, weights, lowest, maximum, top_k.to(tl.float64), True, rounds, counter, met, PROGRAMS, WIDE
        )  # fmt: skip
    if (top_p < 1) & (top_k != 1):
        lowest, met = find_threshold(
            keys, weights, lowest, maximum, top_p.to(tl.float64), False, rounds, counter, met, PROGRAMS, WIDE
        )  # fmt: skip
    return (keys >= lowest) & (weights >= tl.load(parameters + MIN_P)), met


def sample(
    logits: torch.Tensor,
    lanes: torch.Tensor,
    request_fields: torch.Tensor,
    request_parameters: torch.Tensor,
    histogram: torch.Tensor,
    bias_tokens: torch.Tensor,
    bias_values: torch.Tensor,
    grammar_masks: torch.Tensor,
    eos_tokens: torch.Tensor,
    frame: torch.Tensor,
    completion: torch.Tensor,
    logprob_tokens: torch.Tensor,
    logprob_values: torch.Tensor,
    token_capacity: int,
    family: int,
) -> None:
    """Sample the live lanes; write every lane's completion record into the frame."""
    count, vocabulary = lanes.shape[0], logits.shape[1]
    logprobs_max = logprob_tokens.shape[-1]
    assert logprobs_max <= LISTED.value, f"{logprobs_max} log-probabilities are more than {LISTED.value}"
    tile = tile_tokens(count, vocabulary, logits.device)
    programs = triton.cdiv(vocabulary, tile)
    counters = torch.zeros(count, dtype=torch.int32, device=logits.device)
    rounds = logits.new_empty(count * programs * 4 * PIVOTS.value)
    finals = logits.new_empty(count * programs * 4, dtype=torch.float64)
    lists = logits.new_empty(count * programs * LISTED.value, dtype=torch.int64)
    eos_count = eos_tokens.numel()
    sample_lane[(programs, count)](
        *(logits, lanes, request_fields, request_parameters, histogram, bias_tokens, bias_values, grammar_masks),
        *(eos_tokens, frame, completion, logprob_tokens, logprob_values, counters, rounds, finals, lists),
        *(vocabulary, request_fields.shape[0], bias_tokens.shape[1], grammar_masks.shape[1], eos_count),
        *(completion.shape[1], family),
        **{"TOKEN_CAPACITY": token_capacity, "LOGPROBS_MAX": logprobs_max, "TILE": tile, "PROGRAMS": programs},
        **{"WIDE": triton.next_power_of_2(programs), "EOS_WIDE": triton.next_power_of_2(max(eos_count, 1))},
        **{"RECORD_WIDE": triton.next_power_of_2(COMPLETION_FIELDS.value + token_capacity)},
        **{"num_warps": min(32, max(8, tile // 256)), "launch_cooperative_grid": programs > 1},
    )


def tile_tokens(lanes: int, vocabulary: int, device: torch.device) -> int:
    """Tokens that a program holds: programs share a lane, and all of a launch have to run at the same time."""
    if INTERPRETED.value:
        return max(256, int(triton.next_power_of_2(vocabulary)))
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return max(2048, int(triton.next_power_of_2(triton.cdiv(vocabulary, max(1, processors // lanes)))))
