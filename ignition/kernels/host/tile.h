// The one inner product of the host device: R rows times B blocks of 16 outputs, one accumulator an output.
//
// Invariant: an output is the sum over pairs of k in order, each pair by `dot`'s halves in order, in one accumulator. R, B,
// prefetching and how a row is stored choose only which outputs are computed together, so they never change a bit.
#pragma once
#include "simd.h"

// Blocks that a tile of so many rows takes at once: enough sums to hide the latency of a multiply-add, in registers all.
constexpr int tile_blocks(int rows) {
  int blocks = 4;
  while (blocks > 1 && rows * blocks > kTileSums) blocks /= 2;
  return blocks;
}

// Rows as they are stored, at any address: bf16, taken a pair at a time.
template <int R>
struct StoredRows {
  const bf16 *const (&x)[R];
  Splat splat(int r, int64_t pair, int half) const { return splat_pair(x[r] + 2 * pair, half); }
};

// Rows that `stage_row` has prepared.
struct StagedRows {
  const Staged *x;
  int64_t stride;
  Splat splat(int r, int64_t pair, int half) const { return splat_staged(x + r * stride, pair, half); }
};

// Elements from one staged row of K to the next: a cache line more than a multiple of one, so that rows of a tile do not
// fall into the same sets.
inline int64_t staged_stride(int64_t K) { return ceil_div(K, 32) * 32 + 64 / static_cast<int64_t>(sizeof(Staged)); }

// Prepares a row of K for StagedRows, padded with zeros to a multiple of 32.
inline void stage_row(Staged *to, const bf16 *from, int64_t K) {
  if constexpr (sizeof(Staged) == sizeof(bf16)) {
    std::memcpy(to, from, static_cast<size_t>(K) * sizeof(bf16));
  } else {
    int64_t k = 0;
    for (; k + 16 <= K; k += 16) store(reinterpret_cast<float *>(to + k), load_bf16(from + k));
    for (; k < K; k++) to[k] = static_cast<Staged>(widen(from[k]));
  }
  for (int64_t k = K; k < ceil_div(K, 32) * 32; k++) to[k] = 0;
}

template <int R, int B>
inline void clear(Vec (&sum)[R][B]) {
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 16
    for (int b = 0; b < B; b++) sum[r][b] = zero();
}

// sum[r][b] += x[r] . w[b] over `pairs` pairs of k; a block's next pair is `step` elements on. What lies `ahead` bytes after
// each weight is fetched into the cache.
template <int R, int B, typename Rows>
[[gnu::always_inline]] inline void accumulate(Vec (&sum)[R][B], const Rows &x, const bf16 *const (&w)[B], int64_t step,
                                              int64_t pairs, int64_t ahead) {
  for (int64_t p = 0; p < pairs; p++) {
#pragma GCC unroll 16
    for (int b = 0; b < B; b++) _mm_prefetch(reinterpret_cast<const char *>(w[b] + p * step) + ahead, _MM_HINT_T0);
#pragma GCC unroll 2
    for (int half = 0; half < kPairHalves; half++) {
      // What there is less of is held in registers; the other is loaded as it is used.
      if constexpr (R <= B) {
        Splat splats[R];
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) splats[r] = x.splat(r, p, half);
#pragma GCC unroll 16
        for (int b = 0; b < B; b++) {
          const Weights weights = load_weights(w[b] + p * step, half);
#pragma GCC unroll 16
          for (int r = 0; r < R; r++) sum[r][b] = dot(sum[r][b], weights, splats[r]);
        }
      } else {
        Weights weights[B];
#pragma GCC unroll 16
        for (int b = 0; b < B; b++) weights[b] = load_weights(w[b] + p * step, half);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
          const Splat splat = x.splat(r, p, half);
#pragma GCC unroll 16
          for (int b = 0; b < B; b++) sum[r][b] = dot(sum[r][b], weights[b], splat);
        }
      }
    }
  }
}

// The last, odd k of stored rows: a pair whose second half is zero, so that nothing past a row is read.
template <int R, int B>
inline void accumulate_last(Vec (&sum)[R][B], const bf16 *const (&x)[R], const bf16 *const (&w)[B], int64_t K) {
  for (int half = 0; half < kPairHalves; half++)
    for (int r = 0; r < R; r++) {
      Splat s = splat_pair(static_cast<uint32_t>(x[r][K - 1]), half);
      for (int b = 0; b < B; b++) sum[r][b] = dot(sum[r][b], load_weights(w[b] + K / 2 * kPairStep, half), s);
    }
}
