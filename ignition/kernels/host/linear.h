// Products of few rows with a packed weight, shared by the linear and the vocabulary projection.
#pragma once
#include "team.h"
#include "tile.h"

constexpr int kFewRows = 4;
// How far ahead of the reads the weight is fetched, all streams together.
constexpr int kPrefetchBytes = 2048;

// x[r] . w over all of K for B blocks that lie `apart` blocks from each other; `finish(r, block, sum)` takes each result.
template <int R, int B, typename Finish>
[[gnu::always_inline]] inline void few_rows_tile(const bf16 *const (&x)[R], const bf16 *w, int64_t block, int64_t apart,
                                                 int64_t K, const Finish &finish) {
  const int64_t block_elements = ceil_div(K, 2) * kPairStep;
  const bf16 *blocks[B];
  for (int b = 0; b < B; b++) blocks[b] = w + (block + b * apart) * block_elements;
  Vec sum[R][B];
  clear(sum);
  accumulate(sum, StoredRows<R>{x}, blocks, kPairStep, K / 2, kPrefetchBytes / B);
  if (K % 2 != 0) accumulate_last(sum, x, blocks, K);
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 16
    for (int b = 0; b < B; b++) finish(r, block + b * apart, sum[r][b]);
}

// Blocks [range.begin, range.end) for R rows. Each of the B streams walks its own contiguous part of the range, so that
// prefetching ahead in a stream is always right.
template <int R, typename Finish>
inline void few_rows(const bf16 *const (&x)[R], const bf16 *w, Range range, int64_t K, const Finish &finish) {
  constexpr int B = tile_blocks(R);
  const int64_t each = (range.end - range.begin) / B;
  for (int64_t i = 0; i < each; i++) few_rows_tile<R, B>(x, w, range.begin + i, each, K, finish);
  for (int64_t block = range.begin + each * B; block < range.end; block++)
    few_rows_tile<R, 1>(x, w, block, 0, K, finish);
}

// `few_rows` for a count of rows (1 to kFewRows) that is known at run time.
template <typename Finish>
inline void few_rows(const bf16 *const *x, int64_t rows, const bf16 *w, Range range, int64_t K, const Finish &finish) {
  switch (rows) {
    case 1: return few_rows<1>({x[0]}, w, range, K, finish);
    case 2: return few_rows<2>({x[0], x[1]}, w, range, K, finish);
    case 3: return few_rows<3>({x[0], x[1], x[2]}, w, range, K, finish);
    default: return few_rows<4>({x[0], x[1], x[2], x[3]}, w, range, K, finish);
  }
}
