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

// Two thresholds: what reaches `high` falls short of a goal by what `above` says, what reaches `low` does not.
struct Bracket {
  float low, high;
  double above;

  // Halves the bracket until few scores lie in it. `reaching(threshold)` measures what reaches a threshold; each is one pass.
  template <typename Reaching>
  void narrow(double goal, const Reaching &reaching) {
    for (int i = 0; i < 8; i++) {
      const float middle = low + (high - low) / 2;
      if (!(middle > low && middle < high)) return;
      const double reached = reaching(middle);
      if (reached >= goal) {
        low = middle;
      } else {
        high = middle;
        above = reached;
      }
    }
  }
};

inline int64_t count_reaching(const float *scores, int64_t n, float threshold) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i += 16)
    count += __builtin_popcount(bits(greater_equal(load(scores + i), broadcast(threshold))));
  return count;
}

inline double weight_reaching(const float *scores, const float *weights, int64_t n, float threshold) {
  double total = 0;
  for (int64_t i = 0; i < n; i += kScoreBlock) {
    Vec sum = zero();
    for (int64_t j = i; j < i + kScoreBlock; j += 16)
      sum = add(sum, select(greater_equal(load(scores + j), broadcast(threshold)), load(weights + j), zero()));
    total += static_cast<double>(reduce_add(sum));
  }
  return total;
}

inline float smallest_finite(const float *scores, int64_t n) {
  Vec least = broadcast(INFINITY);
  for (int64_t i = 0; i < n; i += 16) {
    const Vec score = load(scores + i);
    least = min(select(greater(score, broadcast(-INFINITY)), score, least), least);
  }
  return -reduce_max(sub(zero(), least));
}

// The k-th largest of n scores, -inf where fewer are finite. `peaks` and `maximum` are the scores'; `spare` holds n floats.
inline float kth_largest(const float *scores, const float *peaks, float maximum, int64_t n, int64_t k, float *spare) {
  Bracket bracket = {lower_bound_of_kth(peaks, n / kScoreBlock, k, spare), INFINITY, 0};
  if (bracket.low == -INFINITY) {
    bracket = {smallest_finite(scores, n), std::nextafter(maximum, INFINITY), 0};
    if (count_reaching(scores, n, bracket.low) < k) return -INFINITY;
    bracket.narrow(static_cast<double>(k),
                   [&](float threshold) { return static_cast<double>(count_reaching(scores, n, threshold)); });
  }
  int64_t count = 0;
  for_each_reaching(scores, n, bracket.low, [&](int64_t i) {
    if (scores[i] < bracket.high) spare[count++] = scores[i];
  });
  const int64_t rank = k - static_cast<int64_t>(bracket.above);
  std::nth_element(spare, spare + rank - 1, spare + count, std::greater<float>());
  return spare[rank - 1];
}

// The smallest score of the smallest set of best scores whose weights reach top_p of the total. `keys` holds n.
inline float nucleus_threshold(const float *scores, const float *weights, float maximum, int64_t n, double total,
                               float top_p, uint64_t *keys) {
  const double goal = static_cast<double>(top_p) * total;
  // Weights below (1 - top_p) total / n together are less than what is left out, so the threshold lies above them; half
  // of that leaves room for rounding.
  const double least = std::log(0.5 * (1 - static_cast<double>(top_p)) * total / static_cast<double>(n));
  Bracket bracket = {maximum + static_cast<float>(least), std::nextafter(maximum, INFINITY), 0};
  bracket.narrow(goal, [&](float threshold) { return weight_reaching(scores, weights, n, threshold); });
  int64_t count = 0;
  for_each_reaching(scores, n, bracket.low, [&](int64_t i) {
    if (scores[i] < bracket.high)
      keys[count++] = static_cast<uint64_t>(ordered(scores[i])) << 32 | std::bit_cast<uint32_t>(weights[i]);
  });
  // From the best down, until the goal is reached.
  std::sort(keys, keys + count, std::greater<uint64_t>());
  double reached = bracket.above;
  int64_t i = 0;
  for (; i + 1 < count; i++) {
    reached += static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(keys[i])));
    if (reached >= goal) break;
  }
  return from_ordered(static_cast<uint32_t>(keys[i] >> 32));
}
