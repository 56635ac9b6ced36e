// A block of keys in vectors: scores and weighted values of up to `kQueryRows` rows.
#pragma once
#include "attention_block.h"

constexpr int kQueryRows = std::min(kTileRows, 8);  // Query rows of a tile.

// What a thread holds while it works on blocks: nothing.
struct BlockRegisters {
  void hold(int64_t) {}
};

// A block's keys and values for one key head. What lies `ahead` bytes after them, the next block's, is fetched into the
// cache on the way; 0 fetches nothing new.
struct Block {
  const bf16 *keys, *values;
  int64_t D, ahead;
  float scale;

  // Partials of rows [first, first + R) of a tile over the keys that each sees, at least one.
  template <int R>
  void partials(Partials &to, int64_t first, StagedRows q, const Keys *seen) const {
    q.x += first * q.stride;
    seen += first;
    float *const values_to = to.values + first * D;
    constexpr int B = tile_blocks(R);
    alignas(64) float weights[R][kPageTokens];
    for (int64_t group = 0; group < kPageTokens / kBlockOutputs; group += B) score<R, B>(weights, q, seen, group);
    Keys common = {0, kPageTokens};
    for (int r = 0; r < R; r++) {
      exponentiate_stored(weights[r], to.maximum[first + r], to.sum[first + r]);
      common = {std::max(common.begin, seen[r].begin), std::min(common.end, seen[r].end)};
    }
    common.end = std::max(common.begin, common.end);
    std::memset(values_to, 0, static_cast<size_t>(R * D) * sizeof(float));
    // A row's keys go in order: those before the common ones, the common ones for all rows together, those after.
    for (int r = 0; r < R; r++) weigh_all<1>(values_to + r * D, weights + r, {seen[r].begin, std::min(seen[r].end, common.begin)});
    weigh_all<R>(values_to, weights, common);
    for (int r = 0; r < R; r++) weigh_all<1>(values_to + r * D, weights + r, {std::max(seen[r].begin, common.end), seen[r].end});
  }

  // `partials` for a count of rows that is known at run time.
  template <int R = kQueryRows>
  void partials_of(int64_t rows, Partials &to, int64_t first, const StagedRows &q, const Keys *seen) const {
    if (rows == R) return partials<R>(to, first, q, seen);
    if constexpr (R > 1) partials_of<R - 1>(rows, to, first, q, seen);
  }

 private:
  // scores[r][key] = scale * q[r] . key, -inf outside of the row's keys, for B groups of 16 keys.
  template <int R, int B>
  void score(float (*scores)[kPageTokens], const StagedRows &q, const Keys *seen, int64_t group) const {
    const bf16 *groups[B];
    for (int b = 0; b < B; b++) groups[b] = keys + (group + b) * kPairStep;
    Vec sum[R][B];
    clear(sum);
    accumulate(sum, q, groups, kKeyStep, D / 2, ahead);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 16
      for (int b = 0; b < B; b++) {
        const int64_t key = (group + b) * kBlockOutputs;
        Vec scaled = mul(sum[r][b], broadcast(scale));
        if (key < seen[r].begin || key + kBlockOutputs > seen[r].end) scaled = hide(scaled, seen[r], key);
        store(scores[r] + key, scaled);
      }
    }
  }

  static void exponentiate_stored(float *scores, float &maximum, float &sum) {
    Vec s[kBlockVectors];
    for (int i = 0; i < kBlockVectors; i++) s[i] = load(scores + i * kBlockOutputs);
    exponentiate(s, maximum, sum);
    for (int i = 0; i < kBlockVectors; i++) store(scores + i * kBlockOutputs, s[i]);
  }

  template <int R>
  void weigh_all(float *to, const float (*weights)[kPageTokens], Keys range) const {
    constexpr int B = tile_blocks(R);
    if (range.begin >= range.end) return;
    int64_t d = 0;
    for (; d + B * kBlockOutputs <= D; d += B * kBlockOutputs) weigh<R, B>(to, weights, d, range);
    if constexpr (B > 1)
      for (; d < D; d += kBlockOutputs) weigh<R, 1>(to, weights, d, range);
  }

  // to[r] += sum over keys in order of weights[r][key] * value[key], for B groups of 16 of D.
  template <int R, int B>
  void weigh(float *to, const float (*weights)[kPageTokens], int64_t d, Keys range) const {
    Vec sum[R][B];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 16
      for (int b = 0; b < B; b++) sum[r][b] = load(to + r * D + d + b * kBlockOutputs);
    }
    for (int64_t pair = range.begin / 2; pair < ceil_div(range.end, 2); pair++) {
      const bf16 *from = values + 2 * (pair * D + d);
#pragma GCC unroll 16
      for (int b = 0; b < B; b++) _mm_prefetch(reinterpret_cast<const char *>(from + b * kPairStep) + ahead, _MM_HINT_T0);
#pragma GCC unroll 2
      for (int half = 0; half < 2; half++) {
        const int64_t key = 2 * pair + half;
        if (key < range.begin || key >= range.end) continue;
        Vec row[B];
#pragma GCC unroll 16
        for (int b = 0; b < B; b++) row[b] = load_half(from + b * kPairStep, half);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
          const Vec weight = broadcast(weights[r][key]);
#pragma GCC unroll 16
          for (int b = 0; b < B; b++) sum[r][b] = fma(weight, row[b], sum[r][b]);
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 16
      for (int b = 0; b < B; b++) store(to + r * D + d + b * kBlockOutputs, sum[r][b]);
    }
  }
};
