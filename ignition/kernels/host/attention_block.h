// One block of 64 keys for a tile of query rows, and how blocks are combined.
//
// Invariant: a row's partial of a block is computed by the same operations whatever rows share the tile, and partials are
// combined in block order, so prefill, decode and a decode split over threads give equal bits. Keys outside a row's
// range are never multiplied with a value: their contents may be anything.
#pragma once
#include <cmath>

#include "team.h"
#include "tile.h"

constexpr int kQueryRows = std::min(kTileRows, 8);  // Query rows of a tile.
constexpr int64_t kHeadWidthMax = 256;

// The keys of a block that a row sees.
struct Keys {
  int64_t begin, end;
};

// Results of a tile's rows over some keys: the maximum of a row's scores, the sum of their exponentials, and where its D
// values weighted by them lie.
struct Partials {
  alignas(64) float maximum[kBlockOutputs] = {};
  alignas(64) float sum[kBlockOutputs] = {};
  float *values[kBlockOutputs];

  // Makes a row's result that of no keys.
  void clear(int64_t r, float *to, int64_t D) {
    maximum[r] = -INFINITY;
    sum[r] = 0;
    values[r] = to;
    std::memset(to, 0, static_cast<size_t>(D) * sizeof(float));
  }

  // Adds the next block's partials to the results of rows [first, end).
  void add(const Partials &block, int64_t first, int64_t end, int64_t D) {
    const Mask rows = mask_of((0xffffu >> (16 - end)) & (0xffffu << first));
    const Vec before = load(maximum), theirs = load(block.maximum), after = max(before, theirs);
    const Vec old = exp_softmax(sub(before, after)), fresh = exp_softmax(sub(theirs, after));
    store(maximum, select(rows, after, before));
    store(sum, select(rows, fma(load(sum), old, mul(load(block.sum), fresh)), load(sum)));
    alignas(64) float old_scale[kBlockOutputs], fresh_scale[kBlockOutputs];
    store(old_scale, old);
    store(fresh_scale, fresh);
    for (int64_t r = first; r < end; r++) {
      const Vec from_old = broadcast(old_scale[r]), from_block = broadcast(fresh_scale[r]);
      for (int64_t d = 0; d < D; d += kBlockOutputs) {
        const Vec scaled = mul(load(block.values[r] + d), from_block);
        store(values[r] + d, fma(load(values[r] + d), from_old, scaled));
      }
    }
  }
};

// The attention of a row whose result covers all of its keys.
inline void finish(bf16 *y, const float *values, float sum, int64_t D) {
  for (int64_t d = 0; d < D; d += kBlockOutputs) store_bf16(y + d, div(load(values + d), broadcast(sum)));
}

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
    float *const *values_to = to.values + first;
    constexpr int B = tile_blocks(R);
    alignas(64) float weights[R][kPageTokens];
    for (int64_t group = 0; group < kPageTokens / kBlockOutputs; group += B) score<R, B>(weights, q, seen, group);
    Keys common = {0, kPageTokens};
    for (int r = 0; r < R; r++) {
      exponentiate(weights[r], to.maximum[first + r], to.sum[first + r]);
      std::memset(values_to[r], 0, static_cast<size_t>(D) * sizeof(float));
      common = {std::max(common.begin, seen[r].begin), std::min(common.end, seen[r].end)};
    }
    common.end = std::max(common.begin, common.end);
    // A row's keys go in order: those before the common ones, the common ones for all rows together, those after.
    for (int r = 0; r < R; r++) weigh_all<1>(values_to + r, weights + r, {seen[r].begin, std::min(seen[r].end, common.begin)});
    weigh_all<R>(values_to, weights, common);
    for (int r = 0; r < R; r++) weigh_all<1>(values_to + r, weights + r, {std::max(seen[r].begin, common.end), seen[r].end});
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

  // -inf in the lanes of keys [key, key + 16) that a row does not see.
  static Vec hide(Vec scores, Keys seen, int64_t key) {
    const int64_t from = std::clamp<int64_t>(seen.begin - key, 0, 16), to = std::clamp<int64_t>(seen.end - key, 0, 16);
    const uint32_t lanes = from < to ? (0xffffu >> (16 - to)) & (0xffffu << from) : 0;
    return select(mask_of(lanes), scores, broadcast(-INFINITY));
  }

  // Replaces a row's scores by their exponentials, relative to their maximum.
  static void exponentiate(float *scores, float &maximum, float &sum) {
    Vec s[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) s[i] = load(scores + 16 * i);
    maximum = reduce_max(max(max(s[0], s[1]), max(s[2], s[3])));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      s[i] = exp_softmax(sub(s[i], broadcast(maximum)));
      store(scores + 16 * i, s[i]);
    }
    sum = reduce_add(add(add(s[0], s[1]), add(s[2], s[3])));
  }

  template <int R>
  void weigh_all(float *const *to, const float (*weights)[kPageTokens], Keys range) const {
    constexpr int B = tile_blocks(R);
    if (range.begin >= range.end) return;
    int64_t d = 0;
    for (; d + B * kBlockOutputs <= D; d += B * kBlockOutputs) weigh<R, B>(to, weights, d, range);
    if constexpr (B > 1)
      for (; d < D; d += kBlockOutputs) weigh<R, 1>(to, weights, d, range);
  }

  // to[r] += sum over keys in order of weights[r][key] * value[key], for B groups of 16 of D.
  template <int R, int B>
  void weigh(float *const *to, const float (*weights)[kPageTokens], int64_t d, Keys range) const {
    Vec sum[R][B];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 16
      for (int b = 0; b < B; b++) sum[r][b] = load(to[r] + d + b * kBlockOutputs);
    }
    for (int64_t key = range.begin; key < range.end; key++) {
      Vec row[B];
      _mm_prefetch(reinterpret_cast<const char *>(values + key * D + d) + ahead, _MM_HINT_T0);
#pragma GCC unroll 16
      for (int b = 0; b < B; b++) row[b] = load_bf16(values + key * D + d + b * kBlockOutputs);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        const Vec weight = broadcast(weights[r][key]);
#pragma GCC unroll 16
        for (int b = 0; b < B; b++) sum[r][b] = fma(weight, row[b], sum[r][b]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 16
      for (int b = 0; b < B; b++) store(to[r] + d + b * kBlockOutputs, sum[r][b]);
    }
  }
};
