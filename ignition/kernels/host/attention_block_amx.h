// A block of keys in AMX tiles: scores and weighted values of up to 16 rows.
//
// A weight of a key enters its product as the sum of two bf16 values, which hold 16 bits of it: an error of 2^-17, where one
// would err by 2^-9. Invariant: a tile's rows are all computed, and what a row does not see has the weight zero, so values
// that are multiplied by it must be finite: they are read from a copy wherever rows of the tile see different keys.
#pragma once
#include <utility>

#include "amx.h"
#include "attention_block.h"

constexpr int kQueryRows = 16;  // Query rows of a tile.

// What a thread holds while it works on blocks.
class BlockRegisters {
 public:
  // Makes room for tiles of so many rows.
  void hold(int64_t rows) { tiles_.shape(rows); }

 private:
  Tiles tiles_{kQueryRows};
};

// A block's keys and values for one key head. What lies `ahead` bytes after them, the next block's, is fetched into the
// cache on the way; 0 fetches nothing.
struct Block {
  const bf16 *keys, *values;
  int64_t D, ahead;
  float scale;

  // Partials of rows [first, first + rows) of a tile over the keys that each sees, at least one. Values of all rows that the
  // registers hold are written.
  void partials_of(int64_t rows, Partials &to, int64_t first, const StagedRows &q, const Keys *seen) const {
    alignas(64) float scores[kQueryRows][kPageTokens];
    alignas(64) Weights weights;
    const Range all = {first, first + rows};
    score(scores, q);
    soften(scores, seen, all, weights, to);
    Keys common = {0, kPageTokens}, any = {kPageTokens, 0};
    for (int64_t r = all.begin; r < all.end; r++) {
      common = {std::max(common.begin, seen[r].begin), std::min(common.end, seen[r].end)};
      any = {std::min(any.begin, seen[r].begin), std::max(any.end, seen[r].end)};
    }
    if (common.begin == 0 && common.end == kPageTokens) return weigh(weights, values, to.values);
    alignas(64) bf16 copy[kPageTokens * kHeadWidthMax];
    const bool same = common.begin == any.begin && common.end == any.end;
    if (copy_values(copy, any) || same) return weigh(weights, copy, to.values);
    // A value is not finite, and only rows that see it may meet it.
    alignas(64) float alone[kQueryRows * kHeadWidthMax];
    for (int64_t r = all.begin; r < all.end; r++) {
      copy_values(copy, seen[r]);
      weigh(weights, copy, alone);
      std::memcpy(to.values + r * D, alone + r * D, static_cast<size_t>(D) * sizeof(float));
    }
  }

 private:
  static constexpr int kGroups = 4;  // Tiles of sums.

  struct Weights {
    bf16 high[kQueryRows][kPageTokens], low[kQueryRows][kPageTokens];
  };

  template <typename Visit>
  [[gnu::always_inline]] static void each_group(const Visit &visit) {
    [&]<int... g>(std::integer_sequence<int, g...>) __attribute__((always_inline)) {
      (..., visit.template operator()<g>());
    }(std::make_integer_sequence<int, kGroups>());
  }

  // Fetches as much of the next block as a tile holds, in the order of addresses and not of the tile's rows: the processor's
  // own prefetcher goes on from there.
  [[gnu::always_inline]] void fetch(const bf16 *part) const {
    if (ahead == 0) return;
    for (int64_t line = 0; line < kTileSide; line++)
      _mm_prefetch(reinterpret_cast<const char *>(part + line * kTileK) + ahead, _MM_HINT_T0);
  }

  // scores[r][key] = q[r] . key
  void score(float (&scores)[kQueryRows][kPageTokens], const StagedRows &q) const {
    each_group([]<int g>() { tile_clear<g>(); });
    for (int64_t d = 0; d < D; d += kTileK) {
      tile_load<4>(q.x + d, q.stride);
      const bf16 *from = keys + d / 2 * kKeyStep;
      each_group([=, this]<int g>() __attribute__((always_inline)) {
        if (d + kTileK <= D) {
          fetch(from + g * kTileElements);
          tile_load<6>(from + g * kPairStep, kKeyStep);
        } else {
          tile_load_pairs<6>(from + g * kPairStep, kKeyStep, (D - d) / 2);
        }
        tile_dot<g, 4, 6>();
      });
    }
    each_group([&]<int g>() { tile_store<g>(&scores[0][g * kBlockOutputs], kPageTokens); });
  }

  // Each row's weights, their sum and the maximum of its scores. Rows go through each step together, so that no row waits
  // for its own maximum.
  void soften(float (&scores)[kQueryRows][kPageTokens], const Keys *seen, Range rows, Weights &weights, Partials &to) const {
    Vec peaks[kQueryRows] = {}, sums[kQueryRows] = {};
    for (int64_t r = rows.begin; r < rows.end; r++) {
      if (seen[r].begin > 0 || seen[r].end < kPageTokens)
        for (int64_t key = 0; key < kPageTokens; key += kBlockOutputs)
          store(scores[r] + key, hide(load(scores[r] + key), seen[r], key));
      peaks[r] = max(max(load(scores[r]), load(scores[r] + 16)), max(load(scores[r] + 32), load(scores[r] + 48)));
    }
    const Vec highest = reduce_rows(peaks, [](Vec a, Vec b) { return max(a, b); });
    store(to.maximum, mul(highest, broadcast(scale)));
    alignas(64) float base[kQueryRows];
    const Vec exponent_scale = broadcast(scale * kLog2E);
    store(base, mul(highest, exponent_scale));
    for (int64_t r = rows.begin; r < rows.end; r++) {
      const Vec shift = sub(zero(), broadcast(base[r]));
      Vec p[kBlockVectors];
#pragma GCC unroll 4
      for (int i = 0; i < kBlockVectors; i++) p[i] = exp2_weight(fma(load(scores[r] + i * kBlockOutputs), exponent_scale, shift));
      sums[r] = add(add(p[0], p[1]), add(p[2], p[3]));
#pragma GCC unroll 2
      for (int i = 0; i < kBlockVectors; i += 2) split(p[i], p[i + 1], weights, r, i * kBlockOutputs);
    }
    store(to.sum, reduce_rows(sums, [](Vec a, Vec b) { return add(a, b); }));
  }

  // 2^y for y <= 0 within 2^-23 of itself, 0 below 2^-126; NaN stays NaN.
  static Vec exp2_weight(Vec y) {
    constexpr float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which its low bits then hold.
    const Vec shifted = add(y, broadcast(shift)), f = sub(y, sub(shifted, broadcast(shift)));
    Vec p = fma(broadcast(0.001326472731307149f), f, broadcast(0.009671512991189957f));
    p = fma(p, f, broadcast(0.05550733581185341f));
    p = fma(p, f, broadcast(0.24022242426872253f));
    p = fma(p, f, broadcast(0.6931470036506653f));
    p = fma(p, f, broadcast(1.0f));
    const __mmask16 kept = _mm512_cmp_ps_mask(y.v, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted.v), 23);
    return {_mm512_castsi512_ps(_mm512_maskz_add_epi32(kept, _mm512_castps_si512(p.v), exponent))};
  }

  static __m512i odd_words() {
    alignas(64) uint16_t words[32];
    for (int i = 0; i < 32; i++) words[i] = static_cast<uint16_t>(2 * i + 1);
    return _mm512_load_si512(words);
  }

  // Stores the weights of 32 keys: their upper halves, and what those leave, rounded.
  static void split(Vec a, Vec b, Weights &to, int64_t r, int64_t key) {
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    const __m512i a_bits = _mm512_castps_si512(a.v), b_bits = _mm512_castps_si512(b.v);
    const __m512i high = _mm512_permutex2var_epi16(a_bits, odd_words(), b_bits);
    const Vec a_rest = sub(a, Vec{_mm512_castsi512_ps(_mm512_and_si512(a_bits, upper))});
    const Vec b_rest = sub(b, Vec{_mm512_castsi512_ps(_mm512_and_si512(b_bits, upper))});
    const __m512bh low = _mm512_cvtne2ps_pbh(b_rest.v, a_rest.v);
    _mm512_store_si512(&to.high[r][key], high);
    _mm512_store_si512(&to.low[r][key], reinterpret_cast<__m512i>(low));
  }

  // to[r] = sum over keys of weights[r][key] * from[key] for every row: 32 keys at a time, of each the high parts and then
  // the low ones.
  void weigh(const Weights &weights, const bf16 *from, float *to) const {
    for (int64_t d = 0; d < D; d += kGroups * kBlockOutputs) {
      const int64_t groups = std::min<int64_t>(kGroups, (D - d) / kBlockOutputs);
      each_group([]<int g>() { tile_clear<g>(); });
      for (int64_t key = 0; key < kPageTokens; key += kTileK) {
        tile_load<4>(&weights.high[0][key], kPageTokens);
        tile_load<5>(&weights.low[0][key], kPageTokens);
        each_group([=, this]<int g>() __attribute__((always_inline)) {
          if (g >= groups) return;
          const bf16 *const tile = from + key * D + 2 * (d + g * kBlockOutputs);
          if (from == values) fetch(from + key * D + (d / kBlockOutputs + g) * kTileElements);
          tile_load<6>(tile, 2 * D);
          tile_dot<g, 4, 6>();
          tile_dot<g, 5, 6>();
        });
      }
      each_group([=, this]<int g>() __attribute__((always_inline)) {
        if (g < groups) tile_store<g>(to + d + g * kBlockOutputs, D);
      });
    }
  }

  // Copies the values of some keys, zeros for the others; whether all of them are finite.
  bool copy_values(bf16 *to, Keys seen) const {
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    __mmask32 infinite = 0;
    for (int64_t pair = 0; pair < kPageTokens / 2; pair++) {
      const bool first = 2 * pair >= seen.begin && 2 * pair < seen.end;
      const bool second = 2 * pair + 1 >= seen.begin && 2 * pair + 1 < seen.end;
      const __m512i kept = _mm512_set1_epi32(static_cast<int>((first ? 0xffffu : 0) | (second ? 0xffff0000u : 0)));
      for (int64_t d = 0; d < 2 * D; d += kPairStep) {
        const __m512i x = _mm512_and_si512(_mm512_loadu_si512(values + 2 * pair * D + d), kept);
        infinite |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponent), exponent);
        _mm512_store_si512(to + 2 * pair * D + d, x);
      }
    }
    return infinite == 0;
  }
};
