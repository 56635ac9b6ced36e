// What a tile of query rows makes of a block of 64 keys, and how blocks are combined.
//
// Invariant: a row's partial of a block is computed by the same operations whatever rows share the tile, and partials are
// combined in block order, so prefill, decode and a decode split over threads give equal bits. Keys outside of a row's
// range never change it: their contents may be anything.
#pragma once
#include <cmath>

#include "team.h"
#include "tile.h"

constexpr int64_t kHeadWidthMax = 256;
constexpr int kBlockVectors = kPageTokens / kBlockOutputs;  // Vectors of a row's scores of a block.

// The keys of a block that a row sees.
struct Keys {
  int64_t begin, end;
};

// Results of a tile's rows over some keys: the maximum of a row's scores, the sum of their exponentials, and where its D
// values weighted by them lie, a row's D behind the one before.
struct Partials {
  alignas(64) float maximum[kBlockOutputs] = {};
  alignas(64) float sum[kBlockOutputs] = {};
  float *values;

  // Makes the results those of no keys.
  void clear(int64_t rows, float *to, int64_t D) {
    for (float &one : maximum) one = -INFINITY;
    values = to;
    std::memset(to, 0, static_cast<size_t>(rows * D) * sizeof(float));
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
      for (int64_t d = r * D; d < (r + 1) * D; d += kBlockOutputs) {
        const Vec scaled = mul(load(block.values + d), from_block);
        store(values + d, fma(load(values + d), from_old, scaled));
      }
    }
  }
};

// The attention of a row whose result covers all of its keys.
inline void finish(bf16 *y, const float *values, float sum, int64_t D) {
  for (int64_t d = 0; d < D; d += kBlockOutputs) store_bf16(y + d, div(load(values + d), broadcast(sum)));
}

// -inf in the lanes of keys [key, key + 16) that a row does not see.
inline Vec hide(Vec scores, Keys seen, int64_t key) {
  const int64_t from = std::clamp<int64_t>(seen.begin - key, 0, 16), to = std::clamp<int64_t>(seen.end - key, 0, 16);
  const uint32_t lanes = from < to ? (0xffffu >> (16 - to)) & (0xffffu << from) : 0;
  return select(mask_of(lanes), scores, broadcast(-INFINITY));
}

// Replaces a row's scores of a block by their exponentials, relative to their maximum.
inline void exponentiate(Vec (&scores)[kBlockVectors], float &maximum, float &sum) {
  maximum = reduce_max(max(max(scores[0], scores[1]), max(scores[2], scores[3])));
#pragma GCC unroll 4
  for (Vec &score : scores) score = exp_softmax(sub(score, broadcast(maximum)));
  sum = reduce_add(add(add(scores[0], scores[1]), add(scores[2], scores[3])));
}
