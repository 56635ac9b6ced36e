// The host operators' entry points: what each takes, in order, and what it promises.
//
// Every entry is `void NAME(void *const *args)`: a pointer argument is the pointer itself, an integer argument is an
// int64 in the pointer's bits, a float argument is a float in the low 32 bits. Ignition records a call as (NAME, args) and
// Helios replays it, so an entry allocates nothing, keeps no state between calls and reads nothing but its arguments.
//
// Promises of all: an output's bits depend on neither the number of rows, the other rows, the thread count, the
// chunking of a prompt nor the capacity. Rows that are not live write no state. T counts rows (tokens), B lanes, C request
// slots, V the vocabulary, Hq/Hk query/key heads, D the head width, H the hidden width.
//
// Shapes are row-major. The layouts that are ours:
//   packed weight of [N, K]   bf16 [ceil(N/16), ceil(K/2), 16, 2]: lanes run over outputs; zeros pad N and K.
//   key segment of a page     bf16 [Hk, D/2, 64, 2]: lanes run over the page's 64 tokens.
//   value segment of a page   bf16 [Hk, 32, D, 2]: lanes run over D, for pairs of tokens.
//   lane record               int64 [4]: LaneField.
// A page's segment for a layer starts at pages + page * page_stride + offset. RequestField, PrefillField, StateField,
// CompletionField and the rest are core.proto's; fields.h mirrors them and a test compares the two.
#pragma once
#include <cstdint>

enum LaneField : int64_t { LANE_SLOT, LANE_STATUS, LANE_SAMPLE, LANE_MASKED, LANE_FIELDS };

extern "C" {
// Packs rows [first, first + count) of a weight: src bf16[count, K], dst packed of [N, K], N, K, first, count.
// first is a multiple of 16; the last call's padding rows are written as zeros.
void flare_pack(void *const *args);

// y[t, n] = round(sum_k x[t, k] w[n, k] (+ bias[n])), summed in FP32 in one order of k.
// x bf16[T, K], w packed, bias bf16[N] or null, y bf16[T, N], scratch, T, N, K.
// scratch: at least flare_linear_scratch_bytes(T, N, K) bytes, 64-byte aligned.
void flare_linear(void *const *args);
int64_t flare_linear_scratch_bytes(int64_t T, int64_t N, int64_t K);

// logits[b, v] = sum_k h[b, k] w[v, k] in FP32 for lanes that are LIVE and sample; other rows are left alone.
// h bf16[B, K], w packed of [V, K], logits f32[B, V], lanes i64[B, 4], B, V, K.
void flare_vocabulary(void *const *args);

// y[t] = row tokens[t] of the packed table, zero where token_slots[t] < 0.
// tokens i64[T], token_slots i64[T], w packed of [V, K], y bf16[T, K], T, V, K.
void flare_embedding(void *const *args);

// y = x, byte by byte. x, y, bytes.
void flare_copy(void *const *args);

// Writes each row's key and value to its page; rows with token_slots[t] < 0 write nothing.
// k bf16[T, Hk, D], v bf16[T, Hk, D], token_slots i64[T], positions i64[T], page_table i32[C, table_width], pages,
// T, Hk, D, table_width, page_stride, key_offset, value_offset.
void flare_kv_write(void *const *args);

// Causal attention of each row over positions [max(0, positions[t] - window + 1), positions[t]] of its slot (window 0:
// from 0); rows with token_slots[t] < 0 give zeros. Keys are reduced in blocks of 64 counted from position 0: every block
// gives its own maximum, sum and weighted values, which are combined in block order. D is a multiple of 16 up to 256.
// q bf16[T, Hq, D], token_slots i64[T], positions i64[T], page_table, pages, y bf16[T, Hq, D], scratch,
// T, Hq, Hk, D, table_width, page_stride, key_offset, value_offset, scale (float, positive), window, scratch_bytes.
void flare_attention(void *const *args);
// Bytes of scratch that let a call of T rows split keys of a context across threads.
int64_t flare_attention_scratch_bytes(int64_t T, int64_t Hq, int64_t D, int64_t context_tokens);

// Decode: a lane is LIVE when its slot holds its epoch, has a pending token and is not finished; INACTIVE when the lane
// is empty or the request finished; else REJECTED. LIVE lanes sample.
// lane_slots i64[B], lane_epochs i64[B], lane_masked i64[B], request_fields i64[C, 16], tokens i64[B], positions i64[B],
// token_slots i64[B], lanes i64[B, 4], B, C, V, context.
void flare_begin_decode(void *const *args);

// Prefill: one request; rows past the command's count are padding (token 0, position 0, slot -1). LIVE when the slot holds
// the epoch, has consumed what the command says, has no pending token and is not finished, and the count is 1 to T.
// command i64[8], prefill_tokens i64[>= T], request_fields, tokens i64[T], positions i64[T], token_slots i64[T],
// lanes i64[1, 4], T, C, V, context.
void flare_begin_prefill(void *const *args);

// Resume: LIVE when the slot holds the epoch, has consumed something, holds no pending token and is not finished.
// Gathers the saved hidden vectors.
// lane_slots i64[B], lane_epochs i64[B], lane_masked i64[B], request_fields, rows, h bf16[B, H], lanes i64[B, 4],
// B, C, H, row_stride, rows_per_slot, hidden_offset.
void flare_begin_resume(void *const *args);

// Counts consumed tokens and saves final hidden vectors of LIVE lanes into their live rows.
// hidden bf16[B, H], lanes, request_fields, rows, B, H, row_stride, rows_per_slot, hidden_offset.
void flare_commit_decode(void *const *args);
// hidden bf16[T, H], command, lanes i64[1, 4], request_fields, rows, h bf16[1, H] (the chunk's last live row), T, H,
// row_stride, rows_per_slot, hidden_offset.
void flare_commit_prefill(void *const *args);

// Samples LIVE sampling lanes and writes every lane's completion record. In order: bias, penalties (from the histogram),
// grammar mask, temperature, top-k (ties kept), top-p (ties kept), min-p, then the inverse distribution in order of token id at one
// Philox4x32-10 uniform (key seed, subsequence 0, block counter, first word). Logprobs are of the unprocessed logits. The sampled token
// becomes PENDING, enters the histogram once and advances COUNTER and GENERATED; an end token or the output limit finishes.
// logits f32[B, V], lanes i64[B, 4], request_fields, request_parameters f32[C, 8], histogram i32[C, V], bias_tokens i64[C, bias_max],
// bias_values f32[C, bias_max], masks u32[B, ceil(V/32)], eos_tokens i64[eos_count], frame i64[1],
// completion i64[F, frame_lanes, 16 + token_capacity], logprob_tokens i64[F, frame_lanes, logprobs_max],
// logprob_values f32[F, frame_lanes, 1 + logprobs_max], scratch,
// B, V, C, bias_max, eos_count, frame_lanes, token_capacity, logprobs_max, family.
void flare_sample(void *const *args);
int64_t flare_sample_scratch_bytes(int64_t B, int64_t V);

// State maintenance of one slot. Each writes lane 0's completion record of the frame; a command whose slot, epoch or
// consumed count does not match is REJECTED and changes nothing.
// Admission: sets the request's fields and parameters and rebuilds the histogram from the prompt. The fields are admission's:
// CONSUMED 0 and PENDING -1. REJECTED where the slot, the epoch (0) or a count or token is out of range.
// command i64[8], fields i64[16], parameters f32[8], prompt i64[context], bias_tokens i64[bias_max], bias_values f32[bias_max],
// request_fields, request_parameters, histogram, request_bias_tokens, request_bias_values, frame, completion,
// C, V, bias_max, context, frame_lanes, token_capacity.
void flare_initialize(void *const *args);
// Copies a snapshot row into the slot: consumed count, hidden vector, and the partial tail page into STATE_FIELD_PAGE.
// Requires an initialized slot of that epoch that has consumed nothing, a row past the slots', and a page exactly when
// STATE_FIELD_CONSUMED is no multiple of page_tokens. The partial segment of a row is page_stride bytes: the whole page.
// command i64[8], request_fields, rows, pages, frame, completion, C, H, row_stride, rows_per_slot, consumed_offset, hidden_offset,
// partial_offset, page_stride, page_tokens, frame_lanes, token_capacity.
void flare_restore(void *const *args);
// Freezes the slot's consumed state into a row: same arguments as flare_restore. STATE_FIELD_CONSUMED must equal the slot's.
void flare_snapshot(void *const *args);
// Empties the slot: every field zero, PENDING -1. command, request_fields, frame, completion, C, frame_lanes, token_capacity.
void flare_reset(void *const *args);
}
