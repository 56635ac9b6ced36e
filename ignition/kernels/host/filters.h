// Exact thresholds of the top-k and top-p filters. A filter is a threshold: every score that reaches it stays, ties included.
#pragma once
#include <algorithm>
#include <functional>

#include "scores.h"

// A float's bits in an order that integers share; -0 and 0 are one.
inline uint32_t ordered(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x + 0.0f);
  return bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}
inline float from_ordered(uint32_t key) {
  return std::bit_cast<float>(key ^ (key >> 31 != 0 ? 0x80000000u : 0xffffffffu));
}

// A lower bound of the k-th largest score from the peaks of blocks: k blocks hold one that reaches it. `spare` is as long
// as `peaks`.
inline float lower_bound_of_kth(const float *peaks, int64_t count, int64_t k, float *spare) {
  if (k > count) return -INFINITY;
  std::copy(peaks, peaks + count, spare);
  std::nth_element(spare, spare + k - 1, spare + count, std::greater<float>());
  return spare[k - 1];
}

// Calls visit(i) for every i < n, in order, whose score reaches the threshold. n is a multiple of 16.
template <typename Visit>
inline void for_each_reaching(const float *scores, int64_t n, float threshold, const Visit &visit) {
  for (int64_t i = 0; i < n; i += 16) {
    uint32_t lanes = bits(greater_equal(load(scores + i), broadcast(threshold)));
    for (; lanes != 0; lanes &= lanes - 1) visit(i + __builtin_ctz(lanes));
  }
}

// The k-th largest of n scores, k <= n. `peaks` are the scores' and `spare` holds n floats.
inline float kth_largest(const float *scores, const float *peaks, int64_t n, int64_t k, float *spare) {
  const float bound = lower_bound_of_kth(peaks, n / kScoreBlock, k, spare);
  int64_t count = 0;
  for_each_reaching(scores, n, bound, [&](int64_t i) { spare[count++] = scores[i]; });
  std::nth_element(spare, spare + k - 1, spare + count, std::greater<float>());
  return spare[k - 1];
}

// The score at which weights, summed from the largest score down, first reach `goal`. Keys hold (ordered score, weight).
inline float crossing(uint64_t *keys, int64_t count, double goal) {
  const auto weight = [](uint64_t key) {
    return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(key)));
  };
  double above = 0;
  int64_t begin = 0, end = count;
  while (end - begin > 32) {
    const int64_t middle = begin + (end - begin) / 2;
    std::nth_element(keys + begin, keys + middle, keys + end, std::greater<uint64_t>());
    double mass = 0;
    for (int64_t i = begin; i < middle; i++) mass += weight(keys[i]);
    if (above + mass >= goal) {
      end = middle;
    } else {
      above += mass;
      begin = middle;
    }
  }
  std::sort(keys + begin, keys + end, std::greater<uint64_t>());
  int64_t i = begin;
  for (; i + 1 < end; i++) {
    above += weight(keys[i]);
    if (above >= goal) break;
  }
  return from_ordered(static_cast<uint32_t>(keys[i] >> 32));
}

// The smallest score of the smallest set of best scores whose weights reach top_p of the total. `keys` holds n.
// All weights below (1 - top_p) total / n together are less than what may be left out, so the crossing lies among the
// others; half of that bound leaves room for rounding.
inline float nucleus_threshold(const float *scores, const float *weights, int64_t n, double total, float top_p,
                               uint64_t *keys) {
  const float least = static_cast<float>(0.5 * (1 - static_cast<double>(top_p)) * total / static_cast<double>(n));
  int64_t count = 0;
  for_each_reaching(weights, n, least, [&](int64_t i) {
    keys[count++] = static_cast<uint64_t>(ordered(scores[i])) << 32 | std::bit_cast<uint32_t>(weights[i]);
  });
  return crossing(keys, count, static_cast<double>(top_p) * total);
}
