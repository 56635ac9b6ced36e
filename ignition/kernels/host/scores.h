// From logits to the scores that a lane samples from: bias, penalties, grammar mask, temperature.
//
// Every pass goes over blocks of 64 tokens in order on one thread, so neither threads nor other lanes can change a bit.
#pragma once
#include <cmath>

#include "fields.h"
#include "simd.h"

constexpr int64_t kScoreBlock = 64;

inline int64_t padded(int64_t n) { return ceil_div(n, kScoreBlock) * kScoreBlock; }

// What changes a lane's logits. `mask` is null where no grammar applies, `bias_count` may be 0.
struct Processing {
  const float *parameters;
  const int32_t *histogram;
  const int64_t *bias_tokens;
  const float *bias_values;
  int64_t bias_count;
  const uint32_t *mask;

  bool penalizes() const {
    return parameters[REQUEST_PARAMETER_REPETITION] != 1 || parameters[REQUEST_PARAMETER_PRESENCE] != 0 ||
           parameters[REQUEST_PARAMETER_FREQUENCY] != 0;
  }

  Vec penalize(Vec z, Vec count) const {
    const Vec repetition = broadcast(parameters[REQUEST_PARAMETER_REPETITION]);
    Vec lower = select(greater(z, zero()), div(z, repetition), mul(z, repetition));
    lower = sub(lower, broadcast(parameters[REQUEST_PARAMETER_PRESENCE]));
    lower = sub(lower, mul(broadcast(parameters[REQUEST_PARAMETER_FREQUENCY]), count));
    return select(greater(count, zero()), lower, z);
  }

  // 16 tokens from `v` on. A NaN becomes -inf: it can never be drawn.
  template <bool Penalize>
  Vec apply(Vec z, const int32_t *counts, int64_t v) const {
    if constexpr (Penalize) z = penalize(z, load_counts(counts));
    if (mask != nullptr) z = select(mask_of(mask[v / 32] >> v % 32 & 0xffff), z, broadcast(-INFINITY));
    z = div(z, broadcast(parameters[REQUEST_PARAMETER_TEMPERATURE]));
    return select(greater_equal(z, z), z, broadcast(-INFINITY));
  }

  template <bool Penalize>
  void apply_all(float *scores, const float *logits, int64_t V) const {
    int64_t v = 0;
    for (; v + 16 <= V; v += 16) store(scores + v, apply<Penalize>(load(logits + v), histogram + v, v));
    if (v == V) return;
    alignas(64) int32_t counts[16] = {};
    std::memcpy(counts, histogram + v, static_cast<size_t>(V - v) * sizeof(int32_t));
    store_first(scores + v, apply<Penalize>(load_first(logits + v, V - v, 0), counts, v), V - v);
  }

  // scores[padded(V)] of logits[V]; the padding is -inf.
  void run(float *scores, const float *logits, int64_t V) const {
    if (bias_count > 0) {
      std::memcpy(scores, logits, static_cast<size_t>(V) * sizeof(float));
      for (int64_t i = 0; i < bias_count; i++) scores[bias_tokens[i]] += bias_values[i];
      logits = scores;
    }
    penalizes() ? apply_all<true>(scores, logits, V) : apply_all<false>(scores, logits, V);
    for (int64_t v = V; v < padded(V); v++) scores[v] = -INFINITY;
  }
};

// The largest score of each block of 64, and of all. NaN scores are passed over.
inline float find_peaks(float *peaks, const float *scores, int64_t n) {
  Vec all = broadcast(-INFINITY);
  for (int64_t i = 0; i < n / kScoreBlock; i++) {
    Vec peak = broadcast(-INFINITY);
    for (int64_t j = 0; j < kScoreBlock; j += 16) peak = max(load(scores + i * kScoreBlock + j), peak);
    peaks[i] = reduce_max(peak);
    all = max(peak, all);
  }
  return reduce_max(all);
}

// weights = exp(scores - maximum), and their total: each block of 64 in FP32, blocks in FP64.
inline double weigh(float *weights, const float *scores, int64_t n, float maximum) {
  double total = 0;
  for (int64_t i = 0; i < n; i += kScoreBlock) {
    Vec sum = zero();
    for (int64_t j = i; j < i + kScoreBlock; j += 16) {
      const Vec weight = exp(sub(load(scores + j), broadcast(maximum)));
      store(weights + j, weight);
      sum = add(sum, weight);
    }
    total += static_cast<double>(reduce_add(sum));
  }
  return total;
}
