"""The operators that components call, `torch.ops.flare.*`: one signature and one meaning on every device.

Nothing here computes. A device's folder implements all of them under torch's name for where the tensors lie ("cpu" in
`host`, "cuda" in `triton`), and torch dispatches; a caller knows no device. A compiled forward sees each operator as
one opaque call. An operator allocates its results and scratch itself, and changes only what its schema marks.

T counts rows (tokens), B lanes, C request slots, V the vocabulary, Hq/Hk query/key heads, D the head width, H the
hidden width. Tensors are contiguous. Integers are i64, `pages` and `rows` u8; offsets and strides are bytes. How a
weight and a page's segment lie is the device's own. Lanes are records i64[B, 4] of LaneField: slot, completion status,
whether it samples, whether its grammar mask applies. RequestField, PrefillField, StateField, CompletionField and
the buffers' shapes are core.proto's.
"""

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor
LANE_FIELDS = 4


def operator(schema: str, fake: Callable[..., Any] = lambda *_: None) -> Callable[..., Any]:
    """Define `flare::NAME` of a schema; `fake` gives results of the right shape and type for tracing."""
    name, parenthesis, rest = schema.partition("(")
    torch.library.define(f"flare::{name}", parenthesis + rest, tags=torch.Tag.pt2_compliant_tag)
    torch.library.register_fake(f"flare::{name}", fake)
    overload: Callable[..., Any] = getattr(torch.ops.flare, name).default
    return overload


# Dense layers. Rows whose token slot is negative are padding.

linear = operator(
    "linear(Tensor x, Tensor weight, Tensor? bias, SymInt out_features) -> Tensor",
    lambda x, weight, bias, out_features: x.new_empty((*x.shape[:-1], out_features)),
)
"""y bf16[..., N] = x W^T (+ b), summed in FP32; x bf16[..., K], a weight of [N, K], bias bf16[N]."""

embedding = operator(
    "embedding(Tensor tokens, Tensor token_slots, Tensor weight, SymInt rows, SymInt width) -> Tensor",
    lambda tokens, token_slots, weight, rows, width: tokens.new_empty((*tokens.shape, width), dtype=torch.bfloat16),
)
"""y bf16[*tokens, K]: rows of a table of [V, K], zero for padding; token_slots i64[T]."""

copy = operator("copy(Tensor x) -> Tensor", lambda x: x.new_empty(x.shape))
"""y of the type, shape and bits of x, which a compiled forward computes once for all who read y."""

vocabulary = operator(
    "vocabulary(Tensor hidden, Tensor weight, Tensor(a!) logits, Tensor lanes, SymInt rows) -> ()",
)
"""logits f32[>= B, V] of hidden bf16[B, H] and a weight of [V, H], for lanes that are LIVE and sample; others stay."""

# Fused forms, which a device's own pass puts in place of several operators; CUDA alone has them. A joined weight is one
# tensor: the rows of q, then k, then v, or those of the gate, then up.

norm_linear = operator(
    "norm_linear(Tensor x, Tensor gain, float eps, Tensor weight, Tensor? bias, SymInt out_features) -> Tensor",
    lambda x, gain, eps, weight, bias, out_features: x.new_empty((*x.shape[:-1], out_features)),
)
"""linear(RMSNorm(x)): the norm's gain is bf16[K], its result rounded before the projection."""

norm_gated = operator(
    "norm_gated(Tensor x, Tensor gain, float eps, Tensor weight, SymInt out_features) -> Tensor",
    lambda x, gain, eps, weight, out_features: x.new_empty((*x.shape[:-1], out_features)),
)
"""silu(gate) * up of RMSNorm(x) and a weight of [2 N, K], rounded after each step."""

linear_add = operator(
    "linear_add(Tensor x, Tensor weight, Tensor? bias, Tensor residual, SymInt out_features) -> Tensor",
    lambda x, weight, bias, residual, out_features: x.new_empty((*x.shape[:-1], out_features)),
)
"""residual + linear(x), the projection rounded before the sum."""

# Attention over pages. page_table i32[C, pages a context takes]; token_slots and positions i64[T].

kv_write = operator(
    "kv_write(Tensor key, Tensor value, Tensor token_slots, Tensor positions, Tensor page_table, Tensor(a!) pages, "
    "SymInt page_stride, SymInt key_offset, SymInt value_offset) -> ()",
)
"""Writes key and value bf16[T, Hk, D] to the pages of each row's slot; padding writes nothing."""

attention = operator(
    "attention(Tensor query, Tensor token_slots, Tensor positions, Tensor page_table, Tensor pages, "
    "SymInt key_value_heads, SymInt page_stride, SymInt key_offset, SymInt value_offset, float scale, SymInt window, "
    "SymInt context_tokens) -> Tensor",
    lambda query, *_: query.new_empty(query.shape),
)
"""y bf16[T, Hq, D]: causal attention of query bf16[T, Hq, D] over its slot's pages, zero for padding.

A row sees positions [max(0, position - window + 1), position]; window 0 is unbounded. No position reaches
context_tokens.
"""

rotary_attention = operator(
    "rotary_attention(Tensor qkv, Tensor cosines, Tensor sines, Tensor token_slots, Tensor positions, "
    "Tensor page_table, Tensor(a!) pages, SymInt heads, SymInt key_value_heads, SymInt page_stride, "
    "SymInt key_offset, SymInt value_offset, float scale, SymInt window, SymInt context_tokens) -> Tensor",
    lambda qkv, cosines, sines, token_slots, positions, page_table, pages, heads, key_value_heads, *_: qkv.new_empty(
        (token_slots.shape[0], heads, qkv.shape[-1] // (heads + 2 * key_value_heads))
    ),
)
"""A fused form: rotates q and k of joined q, k, v bf16[..., T, (Hq + 2 Hk) D] by angles bf16[..., T, D], then kv_write
and attention."""

# Token consumption: what a launch runs, and what it leaves consumed. A rejected lane changes nothing.


def _batch(like: Tensor, tokens: int, lanes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    shapes = ((1, tokens), (1, tokens), (tokens,), (lanes, LANE_FIELDS))
    one, two, three, four = (like.new_empty(shape, dtype=torch.int64) for shape in shapes)
    return one, two, three, four


begin_decode = operator(
    "begin_decode(Tensor lane_slots, Tensor lane_epochs, Tensor lane_masked, Tensor request_fields, SymInt lanes, "
    "SymInt vocabulary, SymInt context_tokens) -> (Tensor, Tensor, Tensor, Tensor)",
    lambda lane_slots, lane_epochs, lane_masked, request_fields, lanes, *_: _batch(lane_slots, lanes, lanes),
)
"""Tokens and positions i64[1, B], token_slots i64[B] and lanes of one pending token a lane.

A lane is LIVE when its slot holds its epoch, has a pending token and is not finished; INACTIVE when the lane is empty
or the request finished; else REJECTED. LIVE lanes sample. Only the first B entries of the lane buffers are read.
"""

begin_prefill = operator(
    "begin_prefill(Tensor command, Tensor prefill_tokens, Tensor request_fields, SymInt tokens, SymInt vocabulary, "
    "SymInt context_tokens) -> (Tensor, Tensor, Tensor, Tensor)",
    lambda command, prefill_tokens, request_fields, tokens, *_: _batch(command, tokens, 1),
)
"""Tokens and positions i64[1, T], token_slots i64[T] and the one lane of a chunk.

Rows past the command's count are padding: token 0, position 0, slot -1. LIVE when the slot holds the epoch, has
consumed what the command says, has no pending token and is not finished, and the count is 1 to T.
"""

begin_resume = operator(
    "begin_resume(Tensor lane_slots, Tensor lane_epochs, Tensor lane_masked, Tensor request_fields, Tensor rows, "
    "SymInt lanes, SymInt hidden, SymInt row_stride, SymInt rows_per_slot, SymInt hidden_offset) -> (Tensor, Tensor)",
    lambda lane_slots, lane_epochs, lane_masked, request_fields, rows, lanes, hidden, *_: (
        lane_slots.new_empty((lanes, hidden), dtype=torch.bfloat16),
        lane_slots.new_empty((lanes, LANE_FIELDS)),
    ),
)
"""Saved hidden vectors bf16[B, H] of restored requests, and their lanes.

LIVE when the slot holds the epoch, has consumed something, holds no pending token and is not finished.
"""

commit_decode = operator(
    "commit_decode(Tensor hidden, Tensor lanes, Tensor(a!) request_fields, Tensor(b!) rows, SymInt row_stride, "
    "SymInt rows_per_slot, SymInt hidden_offset) -> ()",
)
"""Counts consumed tokens and saves final hidden vectors, of hidden bf16[..., B, H], of LIVE lanes into their rows."""

commit_prefill = operator(
    "commit_prefill(Tensor hidden, Tensor command, Tensor lanes, Tensor(a!) request_fields, Tensor(b!) rows, "
    "SymInt row_stride, SymInt rows_per_slot, SymInt hidden_offset) -> Tensor",
    lambda hidden, *_: hidden.new_empty((1, hidden.shape[-1])),
)
"""Counts the chunk and saves its last live row of hidden bf16[..., T, H], which is also the result, bf16[1, H]."""

sample = operator(
    "sample(Tensor logits, Tensor lanes, Tensor(a!) request_fields, Tensor request_parameters, Tensor(b!) histogram, "
    "Tensor bias_tokens, Tensor bias_values, Tensor grammar_masks, Tensor eos_tokens, Tensor frame, "
    "Tensor(c!) completion, Tensor(d!) logprob_tokens, Tensor(e!) logprob_values, SymInt token_capacity, "
    "SymInt family) -> ()",
)
"""Samples LIVE sampling lanes and writes every lane's completion record into the frame.

In order: bias, penalties (from the histogram), grammar mask, temperature, top-k (ties kept), top-p (ties kept), min-p,
then the inverse distribution in order of token id at one Philox4x32-10 uniform (key seed, subsequence 0, block counter,
first word). Logprobs are of the unprocessed logits. The sampled token becomes PENDING, enters the histogram once and
advances COUNTER and GENERATED; an end token or the output limit finishes.
"""

# State maintenance of one slot. Each writes lane 0's completion record of the frame; a command whose slot, epoch or
# consumed count does not match is REJECTED and changes nothing.

initialize = operator(
    "initialize(Tensor command, Tensor fields, Tensor parameters, Tensor prompt, Tensor bias_tokens, "
    "Tensor bias_values, Tensor(a!) request_fields, Tensor(b!) request_parameters, Tensor(c!) histogram, "
    "Tensor(d!) request_bias_tokens, Tensor(e!) request_bias_values, Tensor frame, Tensor(f!) completion, "
    "SymInt context_tokens, SymInt token_capacity) -> ()",
)
"""Admission: sets the request's fields, parameters and biases and rebuilds the histogram from the prompt.

The fields are admission's: CONSUMED 0 and PENDING -1. REJECTED where the slot, the epoch (0) or a count or token is
out of range.
"""

_TRANSFER = (
    "Tensor(d!) completion, SymInt hidden, SymInt row_stride, SymInt rows_per_slot, SymInt consumed_offset, "
    "SymInt hidden_offset, SymInt partial_offset, SymInt page_stride, SymInt page_tokens, SymInt token_capacity) -> ()"
)

restore = operator(
    "restore(Tensor command, Tensor(a!) request_fields, Tensor(b!) rows, Tensor(c!) pages, Tensor frame, " + _TRANSFER
)
"""Copies a snapshot row into the slot: consumed count, hidden vector, and the partial tail page into STATE_FIELD_PAGE.

Requires an initialized slot of that epoch that has consumed nothing, a row past the slots', and a page exactly when
STATE_FIELD_CONSUMED is no multiple of page_tokens. The partial segment of a row is page_stride bytes: the whole page.
"""

snapshot = operator(
    "snapshot(Tensor command, Tensor(a!) request_fields, Tensor(b!) rows, Tensor(c!) pages, Tensor frame, " + _TRANSFER
)
"""Freezes the slot's consumed state into a row, by restore's arguments. STATE_FIELD_CONSUMED must equal the slot's."""

reset = operator(
    "reset(Tensor command, Tensor(a!) request_fields, Tensor frame, Tensor(b!) completion, SymInt token_capacity) -> ()"
)
"""Empties the slot: every field zero, PENDING -1."""
