// Rows times a packed weight in vectors: few rows stream the weight once at the speed of memory, many go tile by tile.
#pragma once
#include "team.h"
#include "tile.h"

constexpr int kFewRows = 4;
// How far ahead of the reads the weight is fetched by few rows, all streams together.
constexpr int kPrefetchBytes = 2048;
// Bytes of staged rows that a thread works on at once: they stay in its second-level cache while the weight passes.
constexpr int64_t kStagedBytes = 192 * 1024;
// Rows a thread from which on threads share rows rather than blocks.
constexpr int64_t kRowsToShare = 32;
// How far ahead of the reads a tile fetches the weight.
constexpr int64_t kAheadBytes = 4096;
// Blocks that stay in a cache while further groups of few rows pass over them.
constexpr int64_t kBlocksAtOnce = 8;

inline int64_t product_scratch_bytes(int64_t T, int64_t K) {
  return T <= kFewRows ? 0 : T * staged_stride(K) * static_cast<int64_t>(sizeof(Staged));
}

// x of T rows of K, w packed of [N, K]; `staged` is scratch of product_scratch_bytes.
struct Product {
  const bf16 *x, *w;
  Staged *staged;
  int64_t T, N, K;

  int64_t blocks() const { return ceil_div(N, kBlockOutputs); }

  // Every row and block, in the team's threads; `finish(t, block, sum)` takes each result.
  template <typename Finish>
  void run(const Finish &finish) const {
    if (T > kFewRows) return run_many(finish);
    int64_t rows[kFewRows];
    for (int64_t t = 0; t < T; t++) rows[t] = t;
#pragma omp parallel num_threads(team_size(T * N * K))
    few_rows(rows, T, my_share(blocks()), finish);
  }

  // The `count` rows of x that `rows` names in ascending order, times blocks of `range`, on the calling thread.
  template <typename Finish>
  void run_rows(const int64_t *rows, int64_t count, Range range, const Finish &finish) const {
    const int64_t step = count <= kFewRows ? std::max<int64_t>(range.end - range.begin, 1) : kBlocksAtOnce;
    for (int64_t block = range.begin; block < range.end; block += step)
      for (int64_t i = 0; i < count; i += kFewRows)
        few_rows(rows + i, std::min<int64_t>(kFewRows, count - i), {block, std::min(block + step, range.end)}, finish);
  }

 private:
  int64_t block_elements() const { return ceil_div(K, 2) * kPairStep; }

  // x[r] . w over all of K for B blocks that lie `apart` blocks from each other.
  template <int R, int B, typename Finish>
  [[gnu::always_inline]] void few_rows_tile(const int64_t *t, const bf16 *const (&rows)[R], int64_t block, int64_t apart,
                                            const Finish &finish) const {
    const bf16 *weights[B];
    for (int b = 0; b < B; b++) weights[b] = w + (block + b * apart) * block_elements();
    Vec sum[R][B];
    clear(sum);
    accumulate(sum, StoredRows<R>{rows}, weights, kPairStep, K / 2, kPrefetchBytes / B);
    if (K % 2 != 0) accumulate_last(sum, rows, weights, K);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
      for (int b = 0; b < B; b++) finish(t[r], block + b * apart, sum[r][b]);
  }

  // Blocks of `range` for `count` rows, 1 to R. Each of the B streams walks its own contiguous part of the range, so that
  // prefetching ahead in a stream is always right.
  template <int R = kFewRows, typename Finish>
  void few_rows(const int64_t *t, int64_t count, Range range, const Finish &finish) const {
    if constexpr (R > 1)
      if (count < R) return few_rows<R - 1>(t, count, range, finish);
    const bf16 *rows[R];
    for (int r = 0; r < R; r++) rows[r] = x + t[r] * K;
    constexpr int B = tile_blocks(R);
    const int64_t each = (range.end - range.begin) / B;
    for (int64_t i = 0; i < each; i++) few_rows_tile<R, B>(t, rows, range.begin + i, each, finish);
    for (int64_t block = range.begin + each * B; block < range.end; block++)
      few_rows_tile<R, 1>(t, rows, block, 0, finish);
  }

  template <int R, int B, typename Finish>
  void tile(int64_t t, int64_t block, const Finish &finish) const {
    const bf16 *weights[B];
    for (int b = 0; b < B; b++) weights[b] = w + (block + b) * block_elements();
    const int64_t stride = staged_stride(K);
    Vec sum[R][B];
    clear(sum);
    accumulate(sum, StagedRows{staged + t * stride, stride}, weights, kPairStep, ceil_div(K, 2), kAheadBytes);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
      for (int b = 0; b < B; b++) finish(t + r, block + b, sum[r][b]);
  }

  // A tile of `rows` rows, 1 to R.
  template <int R, int B, typename Finish>
  void tile_of(int64_t rows, int64_t t, int64_t block, const Finish &finish) const {
    if (rows == R) return tile<R, B>(t, block, finish);
    if constexpr (R > 1) tile_of<R - 1, B>(rows, t, block, finish);
  }

  template <int B, typename Finish>
  void rows_of_block(Range rows, int64_t block, const Finish &finish) const {
    for (int64_t t = rows.begin; t < rows.end; t += kTileRows)
      tile_of<kTileRows, B>(std::min<int64_t>(kTileRows, rows.end - t), t, block, finish);
  }

  void stage(Range rows) const {
    const int64_t stride = staged_stride(K);
    for (int64_t t = rows.begin; t < rows.end; t++) stage_row(staged + t * stride, x + t * K, K);
  }

  // Tiles of staged rows times blocks; a block stays in the first-level cache while the rows pass.
  template <typename Finish>
  void multiply(Range rows, Range share, const Finish &finish) const {
    constexpr int kBlocks = tile_blocks(kTileRows);
    int64_t block = share.begin;
    for (; block + kBlocks <= share.end; block += kBlocks) rows_of_block<kBlocks>(rows, block, finish);
    for (; block < share.end; block++) rows_of_block<1>(rows, block, finish);
  }

  // Each thread takes its own rows and every block, or, where rows are too few for that, every row and its own blocks.
  template <typename Finish>
  void run_many(const Finish &finish) const {
    const int64_t fitting = kStagedBytes / (staged_stride(K) * static_cast<int64_t>(sizeof(Staged)));
    const int64_t chunk = std::max<int64_t>(fitting / kTileRows, 1) * kTileRows;
#pragma omp parallel num_threads(team_size(T * N * K))
    {
      if (T >= kRowsToShare * omp_get_num_threads()) {
        const Range tiles = my_share(ceil_div(T, kTileRows));
        const int64_t end = std::min(T, tiles.end * kTileRows);
        for (int64_t t = tiles.begin * kTileRows; t < end; t += chunk) {
          const Range rows = {t, std::min(t + chunk, end)};
          stage(rows);
          multiply(rows, {0, blocks()}, finish);
        }
      } else {
        stage(my_share(T));
#pragma omp barrier
        for (int64_t t = 0; t < T; t += chunk) multiply({t, std::min(t + chunk, T)}, my_share(blocks()), finish);
      }
    }
  }
};
