// AMX tiles: 16 rows of 64 bytes, and the product of bf16 tiles. Only for objects built with AMX-BF16.
//
// A product adds, for each of its outputs and 32 k, the sum of the 16 even products and the sum of the 16 odd ones to the
// accumulator. Invariant: an output depends on its own row of the first tile and its own column of the second alone, so how
// many rows a tile has never changes a bit. Tiles are live inside one kernel on one thread, never across other code.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "bf16.h"

constexpr int64_t kTileSide = 16;  // Rows of a tile, and outputs of a product of two.
constexpr int64_t kTileK = 32;     // The k that a product of tiles takes.
constexpr int64_t kTileElements = kTileSide * kTileK;

// The calling thread's tiles while this lives. Tiles 0 to 3 hold sums, 4 and 5 rows of x, 6 and 7 weights.
class Tiles {
 public:
  explicit Tiles(int64_t rows) { shape(rows); }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles &) = delete;
  Tiles &operator=(const Tiles &) = delete;

  // Shapes for `rows` (1 to 32) rows of x: tile 4 holds the first 16 of them and tile 5 the rest, and where there are more
  // than 16, sums 0 and 1 are the first ones' and sums 2 and 3 the rest's.
  void shape(int64_t rows) {
    if (rows == rows_) return;
    rows_ = rows;
    const auto first = static_cast<uint8_t>(rows < kTileSide ? rows : kTileSide);
    const auto rest = static_cast<uint8_t>(rows - first);
    const uint8_t second = rest == 0 ? first : rest;
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16];
    } config = {.rows = {first, first, second, second, first, second, kTileSide, kTileSide}};
    static_assert(sizeof(config) == 64);
    asm volatile("ldtilecfg %0" : : "m"(config));
  }

 private:
  int64_t rows_ = 0;
};

template <int Tile>
inline void tile_clear() {
  asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
}

// Rows `stride` elements apart.
template <int Tile>
inline void tile_load(const bf16 *from, int64_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(Tile), "r"(from), "r"(2 * stride) : "memory");
}

template <int Tile>
inline void tile_store(float *to, int64_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(Tile), "r"(to), "r"(4 * stride) : "memory");
}

template <int Sum, int Rows, int Weights>
inline void tile_dot() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(Rows), "i"(Weights));
}

// Fewer than 16 pairs of k of a weight, the missing ones zero, so that nothing past them is read.
template <int Tile>
inline void tile_load_pairs(const bf16 *from, int64_t stride, int64_t pairs) {
  alignas(64) bf16 padded[kTileElements] = {};
  for (int64_t pair = 0; pair < pairs; pair++) std::memcpy(padded + pair * kTileK, from + pair * stride, 2 * kTileK);
  tile_load<Tile>(padded, kTileK);
}
