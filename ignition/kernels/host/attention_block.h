// One block of 64 keys for a tile of query rows, and how blocks are combined.
//
// Invariant: a row's partial of a block is computed by the same operations whatever rows share the tile, and partials are
// combined in block order, so prefill, decode and a decode split over threads give equal bits. Keys outside a row's
// range are never multiplied with a value: their contents may be anything.
#pragma once
#include <cmath>

#include "team.h"
#include "tile.h"

constexpr int kQueryRows = 6;       // Query rows of a tile.
constexpr int64_t kHeadWidthMax = 256;

// A row's result over some keys: the maximum of its scores, the sum of the exponentials, the values weighted by them.
// `values` holds D floats.
struct Partial {
  float maximum, sum;
  float *values;
};

// The keys of a block that a row sees.
struct Keys {
  int64_t begin, end;
};

// scores[r][key] = scale * q[r] . key, -inf outside of the row's keys.
template <int R, int B>
inline void score_keys(float (*scores)[kPageTokens], const StagedRows &q, const bf16 *keys, int64_t D, float scale,
                       const Keys *seen, int64_t group) {
  const bf16 *weights[B];
  for (int b = 0; b < B; b++) weights[b] = keys + (group + b) * kPairStep;
  Vec sum[R][B];
  clear(sum);
  accumulate(sum, q, weights, kKeyStep, D / 2);
  for (int r = 0; r < R; r++)
    for (int b = 0; b < B; b++) {
      const int64_t key = (group + b) * kBlockOutputs;
      const int64_t from = std::clamp<int64_t>(seen[r].begin - key, 0, 16), to = std::clamp<int64_t>(seen[r].end - key, 0, 16);
      const uint32_t lanes = from < to ? (0xffffu >> (16 - to)) & (0xffffu << from) : 0;
      store(scores[r] + key, select(mask_of(lanes), mul(sum[r][b], broadcast(scale)), broadcast(-INFINITY)));
    }
}

// values[r] += sum over keys in order of weights[r][key] * v[key], for B blocks of 16 of D.
template <int R, int B>
inline void weigh_values(float *const *values, const float (*weights)[kPageTokens], const bf16 *v, int64_t D, int64_t d,
                         Keys keys) {
  Vec sum[R][B];
  for (int r = 0; r < R; r++)
    for (int b = 0; b < B; b++) sum[r][b] = load(values[r] + d + b * kBlockOutputs);
  for (int64_t key = keys.begin; key < keys.end; key++) {
    Vec row[B];
    for (int b = 0; b < B; b++) row[b] = load_bf16(v + key * D + d + b * kBlockOutputs);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      const Vec weight = broadcast(weights[r][key]);
#pragma GCC unroll 16
      for (int b = 0; b < B; b++) sum[r][b] = fma(weight, row[b], sum[r][b]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int b = 0; b < B; b++) store(values[r] + d + b * kBlockOutputs, sum[r][b]);
}

template <int R>
inline void weigh_all_values(float *const *values, const float (*weights)[kPageTokens], const bf16 *v, int64_t D, Keys keys) {
  constexpr int B = R == 1 ? 4 : R <= 3 ? 2 : 1;
  if (keys.begin >= keys.end) return;
  int64_t d = 0;
  for (; d + B * kBlockOutputs <= D; d += B * kBlockOutputs) weigh_values<R, B>(values, weights, v, D, d, keys);
  for (; d < D; d += kBlockOutputs) weigh_values<R, 1>(values, weights, v, D, d, keys);
}

// The partials of R query rows over the keys of one block that each sees (`seen` holds at least one key for each row).
template <int R>
inline void block_partials(Partial *partials, const StagedRows &q, const bf16 *keys, const bf16 *v, int64_t D, float scale,
                           const Keys *seen) {
  constexpr int B = R == 1 ? 4 : R <= 3 ? 2 : 1;
  alignas(64) float scores[R][kPageTokens];
  for (int64_t group = 0; group < kPageTokens / kBlockOutputs; group += B)
    score_keys<R, B>(scores, q, keys, D, scale, seen, group);
  Keys common = {0, kPageTokens};
  float *values[R];
  for (int r = 0; r < R; r++) {
    Vec s[4];
    for (int i = 0; i < 4; i++) s[i] = load(scores[r] + 16 * i);
    const float maximum = reduce_max(max(max(s[0], s[1]), max(s[2], s[3])));
    for (int i = 0; i < 4; i++) {
      s[i] = exp(sub(s[i], broadcast(maximum)));
      store(scores[r] + 16 * i, s[i]);
    }
    partials[r].maximum = maximum;
    partials[r].sum = reduce_add(add(add(s[0], s[1]), add(s[2], s[3])));
    values[r] = partials[r].values;
    std::memset(values[r], 0, static_cast<size_t>(D) * sizeof(float));
    common = {std::max(common.begin, seen[r].begin), std::min(common.end, seen[r].end)};
  }
  common.end = std::max(common.begin, common.end);
  // A row's keys go in order: those before the common ones, the common ones for all rows together, those after.
  for (int r = 0; r < R; r++)
    weigh_all_values<1>(values + r, scores + r, v, D, {seen[r].begin, std::min(seen[r].end, common.begin)});
  weigh_all_values<R>(values, scores, v, D, common);
  for (int r = 0; r < R; r++)
    weigh_all_values<1>(values + r, scores + r, v, D, {std::max(seen[r].begin, common.end), seen[r].end});
}

// `block_partials` for a count of rows that is known at run time.
template <int R = kQueryRows>
inline void block_partials_of(int64_t rows, Partial *partials, const StagedRows &q, const bf16 *keys, const bf16 *v, int64_t D,
                              float scale, const Keys *seen) {
  if (rows == R) return block_partials<R>(partials, q, keys, v, D, scale, seen);
  if constexpr (R > 1) block_partials_of<R - 1>(rows, partials, q, keys, v, D, scale, seen);
}

// Adds the next block's partial to a row's result; a result of no keys has maximum -inf, sum 0 and values 0.
inline void combine(Partial &result, const Partial &block, int64_t D) {
  const float maximum = std::max(result.maximum, block.maximum);
  const float old = exp_one(result.maximum - maximum), fresh = exp_one(block.maximum - maximum);
  result.maximum = maximum;
  result.sum = result.sum * old + block.sum * fresh;
  for (int64_t d = 0; d < D; d += kBlockOutputs) {
    const Vec scaled = mul(load(block.values + d), broadcast(fresh));
    store(result.values + d, fma(load(result.values + d), broadcast(old), scaled));
  }
}

inline void clear(Partial &result, int64_t D) {
  result.maximum = -INFINITY;
  result.sum = 0;
  std::memset(result.values, 0, static_cast<size_t>(D) * sizeof(float));
}

inline void finish(bf16 *y, const Partial &result, int64_t D) {
  for (int64_t d = 0; d < D; d += kBlockOutputs) store_bf16(y + d, div(load(result.values + d), broadcast(result.sum)));
}
