// Rows times a packed weight in AMX tiles: 16 pairs of k of a packed block are one tile as they lie.
//
// Invariant: an output is the sum of `tile_dot` over steps of 32 k in order, the last one padded with zeros. Rows, blocks and
// threads choose only which outputs are computed together. Rows that are not asked for may be read, never written.
#pragma once
#include <utility>

#include "amx.h"
#include "simd.h"
#include "team.h"

// Rows of x that stay in a thread's second-level cache while blocks pass.
constexpr int64_t kCachedBytes = 1024 * 1024;
// How far ahead of the reads the weight is fetched, all streams together.
constexpr int64_t kPrefetchBytes = 8192;
// Blocks that few rows take at once.
constexpr int kStreams = 4;
// Blocks that stay in a cache while further groups of rows pass over them.
constexpr int64_t kBlocksAtOnce = 8;

// Rows need no preparation.
using Staged = bf16;
inline int64_t product_scratch_bytes(int64_t, int64_t) { return 0; }

// x of T rows of K, w packed of [N, K].
struct Product {
  const bf16 *x, *w;
  Staged *staged;
  int64_t T, N, K;

  int64_t blocks() const { return ceil_div(N, kBlockOutputs); }
  int64_t block_elements() const { return ceil_div(K, 2) * kPairStep; }
  const bf16 *block(int64_t index) const { return w + index * block_elements(); }

  // Every row and block; `finish(t, block, sum)` takes each result.
  template <typename Finish>
  void run(const Finish &finish) const {
    const int64_t pairs = ceil_div(blocks(), 2);
#pragma omp parallel num_threads(team_size(T * N * K))
    {
      Tiles tiles(std::min(T, 2 * kTileSide));
      if (T <= kTileSide) {
        few_rows(tiles, 0, T, my_share(blocks()), finish);
      } else {
        // Units are chunks of rows times pairs of blocks, enough of them to share out evenly.
        const int64_t fitting = std::max<int64_t>(kCachedBytes / (2 * K), 1);
        const int64_t chunks = std::max(ceil_div(T, fitting), std::min(T / 64, ceil_div(4 * omp_get_num_threads(), pairs)));
        const int64_t chunk = ceil_div(ceil_div(T, chunks), 2 * kTileSide) * 2 * kTileSide;
        const Range units = my_share(ceil_div(T, chunk) * pairs);
        for (int64_t unit = units.begin; unit < units.end; unit++) {
          const int64_t t = unit / pairs * chunk;
          many_rows(tiles, {t, std::min(t + chunk, T)}, unit % pairs, finish);
        }
      }
    }
  }

  // The `count` rows of x that `rows` names in ascending order, times blocks of `range`, on the calling thread.
  template <typename Finish>
  void run_rows(const int64_t *rows, int64_t count, Range range, const Finish &finish) const {
    Tiles tiles(1);
    const bool once = rows[count - 1] - rows[0] < kTileSide;
    const int64_t step = once ? std::max<int64_t>(range.end - range.begin, 1) : kBlocksAtOnce;
    for (int64_t block = range.begin; block < range.end; block += step)
      for (int64_t i = 0, next; i < count; i = next) {
        uint32_t named = 0;  // A window of 16 rows also reads those that are not named.
        for (next = i; next < count && rows[next] - rows[i] < kTileSide; next++) named |= 1u << (rows[next] - rows[i]);
        few_rows(tiles, rows[i], rows[next - 1] - rows[i] + 1, {block, std::min(block + step, range.end)},
                 [&](int64_t t, int64_t b, Vec sum) {
                   if (named >> (t - rows[i]) & 1) finish(t, b, sum);
                 });
      }
  }

 private:
  // Sums 2 r + b of R tiles of rows and B blocks.
  template <int R, int B, typename Visit>
  [[gnu::always_inline]] static void each_sum(const Visit &visit) {
    [&]<int... b>(std::integer_sequence<int, b...>) __attribute__((always_inline)) {
      (..., visit.template operator()<b>(0, b));
      if constexpr (R == 2) (..., visit.template operator()<2 + b>(1, b));
    }(std::make_integer_sequence<int, B>());
  }

  // One step of k for R tiles of rows, and for B blocks that `load_weights` gives.
  template <int R, int B, typename LoadWeights>
  [[gnu::always_inline]] static void step(const bf16 *rows, int64_t stride, const LoadWeights &load_weights) {
    tile_load<4>(rows, stride);
    if constexpr (R == 2) tile_load<5>(rows + kTileSide * stride, stride);
    [&]<int... b>(std::integer_sequence<int, b...>) __attribute__((always_inline)) {
      (..., column<R, b>(load_weights));
    }(std::make_integer_sequence<int, B>());
  }

  template <int R, int b, typename LoadWeights>
  [[gnu::always_inline]] static void column(const LoadWeights &load_weights) {
    constexpr int Weights = 6 + b % 2;
    load_weights.template operator()<Weights>(b);
    tile_dot<b, 4, Weights>();
    if constexpr (R == 2) tile_dot<2 + b, 5, Weights>();
  }

  // A part of the weight that later work reads, fetched on the way: so many cache lines a step.
  struct Ahead {
    const char *from;
    int64_t lines;

    void fetch(int64_t s) const {
      for (int64_t i = s * lines; i < (s + 1) * lines; i++) _mm_prefetch(from + i * 64, _MM_HINT_T1);
    }
  };

  // Rows [t, t + rows), R tiles of them, times B blocks that lie `apart` blocks from each other.
  template <int R, int B, typename Finish>
  void panel(Tiles &tiles, int64_t t, int64_t rows, int64_t first, int64_t apart, Ahead ahead, const Finish &finish) const {
    const bf16 *const weights = block(first), *const from = x + t * K;
    const int64_t next = apart * block_elements(), stride = K, steps = K / kTileK;
    alignas(64) float sums[R * kTileSide][B * kBlockOutputs];
    tiles.shape(rows);
    each_sum<R, B>([]<int Sum>(int, int) { tile_clear<Sum>(); });
    for (int64_t s = 0; s < steps; s++) {
      if (ahead.lines > 0) ahead.fetch(s);
      step<R, B>(from + s * kTileK, stride, [=]<int Tile>(int b) __attribute__((always_inline)) {
        const bf16 *const tile = weights + b * next + s * kTileElements;
        if (ahead.lines == 0)
          for (int64_t line = 0; line < kTileSide; line++)
            _mm_prefetch(reinterpret_cast<const char *>(tile + line * kTileK) + kPrefetchBytes / B, _MM_HINT_T0);
        tile_load<Tile>(tile, kTileK);
      });
    }
    if (const int64_t rest = K % kTileK; rest != 0) {
      alignas(64) bf16 padded[R * kTileSide * kTileK] = {};
      for (int64_t r = 0; r < rows; r++)
        std::memcpy(padded + r * kTileK, from + r * K + K - rest, static_cast<size_t>(rest) * sizeof(bf16));
      step<R, B>(padded, kTileK, [=]<int Tile>(int b) {
        tile_load_pairs<Tile>(weights + b * next + steps * kTileElements, kPairStep, ceil_div(rest, 2));
      });
    }
    each_sum<R, B>([&]<int Sum>(int r, int b) {
      tile_store<Sum>(&sums[r * kTileSide][b * kBlockOutputs], B * kBlockOutputs);
    });
    for (int b = 0; b < B; b++)
      for (int64_t r = 0; r < rows; r++) finish(t + r, first + b * apart, load(&sums[r][b * kBlockOutputs]));
  }

  // Blocks of `range` for rows [t, t + rows), at most 16. Each stream of the weight walks its own contiguous part of the
  // range, so that prefetching ahead in a stream is always right.
  template <typename Finish>
  void few_rows(Tiles &tiles, int64_t t, int64_t rows, Range range, const Finish &finish) const {
    const int64_t each = (range.end - range.begin) / kStreams;
    for (int64_t i = 0; i < each; i++) panel<1, kStreams>(tiles, t, rows, range.begin + i, each, {}, finish);
    for (int64_t i = range.begin + each * kStreams; i < range.end; i++) panel<1, 1>(tiles, t, rows, i, 0, {}, finish);
  }

  // A pair of blocks, or the last single one, stays in a cache while rows [begin, end) pass and the next pair is fetched.
  template <typename Finish>
  void many_rows(Tiles &tiles, Range rows, int64_t pair, const Finish &finish) const {
    const int64_t panels = ceil_div(rows.end - rows.begin, 2 * kTileSide), lines = ceil_div(2 * kTileSide, panels);
    const char *next = reinterpret_cast<const char *>(block(2 * pair + 2));
    for (int64_t t = rows.begin; t < rows.end; t += 2 * kTileSide, next += lines * (K / kTileK) * 64) {
      const int64_t count = std::min(2 * kTileSide, rows.end - t), first = 2 * pair;
      const bool two = first + 1 < blocks();
      const Ahead ahead = {next, lines};
      if (count > kTileSide) {
        two ? panel<2, 2>(tiles, t, count, first, 1, ahead, finish) : panel<2, 1>(tiles, t, count, first, 0, ahead, finish);
      } else {
        two ? panel<1, 2>(tiles, t, count, first, 1, ahead, finish) : panel<1, 1>(tiles, t, count, first, 0, ahead, finish);
      }
    }
  }
};
