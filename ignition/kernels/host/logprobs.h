// Log-probabilities of the unprocessed logits: the sampled token's, then the most likely tokens'.
#pragma once
#include "filters.h"

struct Logprobs {
  const float *logits;
  int64_t V;
  float maximum;
  double log_sum;

  // `copy` holds padded(V) floats, `peaks` one for each of its blocks.
  Logprobs(const float *logits, int64_t V, float *copy, float *weights, float *peaks) : logits(logits), V(V) {
    std::memcpy(copy, logits, static_cast<size_t>(V) * sizeof(float));
    std::fill(copy + V, copy + padded(V), -INFINITY);
    maximum = find_peaks(peaks, copy, padded(V));
    log_sum = std::log(weigh(weights, copy, padded(V), maximum));
  }

  float of(int64_t token) const {
    return static_cast<float>(static_cast<double>(logits[token]) - static_cast<double>(maximum) - log_sum);
  }

  // Writes the `wanted` most likely tokens, best first, ties by lower id, and gives how many there are. `copy` and
  // `peaks` are the constructor's; `keys` holds padded(V).
  int64_t best(int64_t wanted, const float *copy, const float *peaks, uint64_t *keys, int64_t *tokens, float *values) const {
    if (wanted == 0) return 0;
    const float bound = lower_bound_of_kth(peaks, padded(V) / kScoreBlock, wanted, reinterpret_cast<float *>(keys));
    int64_t count = 0;
    for_each_reaching(copy, padded(V), bound, [&](int64_t v) {
      if (v < V) keys[count++] = static_cast<uint64_t>(ordered(logits[v])) << 32 | (UINT32_MAX - static_cast<uint32_t>(v));
    });
    const int64_t found = std::min(wanted, count);
    std::partial_sort(keys, keys + found, keys + count, std::greater<uint64_t>());
    for (int64_t i = 0; i < found; i++) {
      tokens[i] = static_cast<int64_t>(UINT32_MAX - static_cast<uint32_t>(keys[i]));
      values[i] = of(tokens[i]);
    }
    return found;
  }
};
