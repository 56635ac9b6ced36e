// The linear layer: few rows stream the weight once at the speed of memory, many rows go tile by tile.
#include "linear.h"

#include "arguments.h"
#include "operators.h"

namespace {

// Bytes of staged rows that a thread works on at once: they stay in its second-level cache while the weight passes.
constexpr int64_t kStagedBytes = 192 * 1024;
// Rows a thread from which on threads share rows rather than blocks.
constexpr int64_t kRowsToShare = 32;
// How far ahead of the reads a tile fetches the weight.
constexpr int64_t kAheadBytes = 4096;

struct Linear {
  const bf16 *x, *w, *bias;
  bf16 *y;
  Staged *staged;
  int64_t T, N, K;

  int64_t blocks() const { return ceil_div(N, kBlockOutputs); }
  int64_t block_elements() const { return ceil_div(K, 2) * kPairStep; }

  // Adds the bias and rounds the outputs of a block for one row.
  void finish(int64_t t, int64_t block, Vec sum) const {
    const int64_t n = block * kBlockOutputs, count = std::min(kBlockOutputs, N - n);
    alignas(32) bf16 tail[kBlockOutputs] = {};
    if (bias != nullptr) {
      const bf16 *from = bias + n;
      if (count < kBlockOutputs) {
        std::memcpy(tail, from, static_cast<size_t>(count) * sizeof(bf16));
        from = tail;
      }
      sum = add(sum, load_bf16(from));
    }
    bf16 *to = y + t * N + n;
    if (count == kBlockOutputs) {
      store_bf16(to, sum);
    } else {
      store_bf16_first(to, sum, count);
    }
  }

  void run_few() const {
    const bf16 *rows[kFewRows];
    for (int64_t t = 0; t < T; t++) rows[t] = x + t * K;
#pragma omp parallel num_threads(team_size(T * N * K))
    few_rows(rows, T, w, my_share(blocks()), K, [this](int r, int64_t block, Vec sum) { finish(r, block, sum); });
  }

  template <int R, int B>
  void tile(int64_t t, int64_t block) const {
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
  template <int R, int B>
  void tile_of(int64_t rows, int64_t t, int64_t block) const {
    if (rows == R) return tile<R, B>(t, block);
    if constexpr (R > 1) tile_of<R - 1, B>(rows, t, block);
  }

  template <int B>
  void rows_of_block(Range rows, int64_t block) const {
    for (int64_t t = rows.begin; t < rows.end; t += kTileRows)
      tile_of<kTileRows, B>(std::min<int64_t>(kTileRows, rows.end - t), t, block);
  }

  void stage(Range rows) const {
    const int64_t stride = staged_stride(K);
    for (int64_t t = rows.begin; t < rows.end; t++) stage_row(staged + t * stride, x + t * K, K);
  }

  // Tiles of staged rows times blocks; a block stays in the first-level cache while the rows pass.
  void multiply(Range rows, Range share) const {
    constexpr int kBlocks = tile_blocks(kTileRows);
    int64_t block = share.begin;
    for (; block + kBlocks <= share.end; block += kBlocks) rows_of_block<kBlocks>(rows, block);
    for (; block < share.end; block++) rows_of_block<1>(rows, block);
  }

  // Each thread takes its own rows and every block, or, where rows are too few for that, every row and its own blocks.
  void run_many() const {
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
          multiply(rows, {0, blocks()});
        }
      } else {
        stage(my_share(T));
#pragma omp barrier
        for (int64_t t = 0; t < T; t += chunk) multiply({t, std::min(t + chunk, T)}, my_share(blocks()));
      }
    }
  }
};

}  // namespace

int64_t flare_linear_scratch_bytes(int64_t T, int64_t, int64_t K) {
  return T <= kFewRows ? 0 : T * staged_stride(K) * static_cast<int64_t>(sizeof(Staged));
}

void flare_linear(void *const *args) {
  Arguments in(args);
  Linear linear;
  linear.x = in.pointer<const bf16>();
  linear.w = in.pointer<const bf16>();
  linear.bias = in.pointer<const bf16>();
  linear.y = in.pointer<bf16>();
  linear.staged = in.pointer<Staged>();
  linear.T = in.integer();
  linear.N = in.integer();
  linear.K = in.integer();
  if (linear.T <= kFewRows) {
    linear.run_few();
  } else {
    linear.run_many();
  }
}
