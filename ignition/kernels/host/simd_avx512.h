// AVX-512: a vector of 16 floats is one register. With AVX512_BF16 a pair product is one instruction. Included by simd.h alone.
#pragma once

struct Vec {
  __m512 v;
};
struct Mask {
  __mmask16 m;
};

inline Vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline Vec zero() { return {_mm512_setzero_ps()}; }
inline Vec load(const float *p) { return {_mm512_loadu_ps(p)}; }
inline void store(float *p, Vec v) { _mm512_storeu_ps(p, v.v); }
inline Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
// Where a lane of either is NaN, min and max give the second operand's.
inline Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec round(Vec a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }

inline float first(Vec v) { return _mm512_cvtss_f32(v.v); }
inline __m256 upper(Vec v) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v.v), 1)); }
inline float reduce_max(Vec v) {
  __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v.v), upper(v));
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}
inline float reduce_add(Vec v) {
  __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v.v), upper(v));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

// The sixteen rows' results of `op` over the lanes of each, in order of the rows. Every row's lanes meet in the same order.
template <typename Op>
inline Vec reduce_rows(const Vec (&rows)[16], const Op &op) {
  Vec a[8], b[4], c[2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++)
    a[i] = op(Vec{_mm512_shuffle_f32x4(rows[i].v, rows[i + 8].v, 0x44)}, Vec{_mm512_shuffle_f32x4(rows[i].v, rows[i + 8].v, 0xee)});
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
    b[i] = op(Vec{_mm512_shuffle_f32x4(a[i].v, a[i + 4].v, 0x88)}, Vec{_mm512_shuffle_f32x4(a[i].v, a[i + 4].v, 0xdd)});
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    const __m512d x = _mm512_castps_pd(b[i].v), y = _mm512_castps_pd(b[i + 2].v);
    c[i] = op(Vec{_mm512_castpd_ps(_mm512_unpacklo_pd(x, y))}, Vec{_mm512_castpd_ps(_mm512_unpackhi_pd(x, y))});
  }
  const Vec mixed = op(Vec{_mm512_shuffle_ps(c[0].v, c[1].v, 0x88)}, Vec{_mm512_shuffle_ps(c[0].v, c[1].v, 0xdd)});
  const __m512i order = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
  return {_mm512_permutexvar_ps(order, mixed.v)};
}

// v * 2^n
inline Vec scale(Vec v, Vec n) { return {_mm512_scalef_ps(v.v, n.v)}; }

// p * 2^n by its exponent's bits, n being the low bits of `shifted`; the result must be normal.
inline Vec add_exponent(Vec p, Vec shifted) {
  return {_mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(p.v), _mm512_slli_epi32(_mm512_castps_si512(shifted.v), 23)))};
}

inline Mask greater_equal(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ)}; }
inline Mask greater(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)}; }
inline Mask both(Mask a, Mask b) { return {static_cast<__mmask16>(a.m & b.m)}; }
inline Vec select(Mask m, Vec yes, Vec no) { return {_mm512_mask_blend_ps(m.m, no.v, yes.v)}; }
inline uint32_t bits(Mask m) { return m.m; }
inline Mask mask_of(uint32_t lane_bits) { return {static_cast<__mmask16>(lane_bits)}; }

inline Vec load_counts(const int32_t *p) { return {_mm512_cvtepi32_ps(_mm512_loadu_si512(p))}; }

inline Vec load_bf16(const bf16 *p) {
  __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(x, 16))};
}
// The first or the second values of 16 pairs.
inline Vec load_half(const bf16 *p, int half) {
  const __m512i x = _mm512_loadu_si512(p), high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  return {_mm512_castsi512_ps(half == 0 ? _mm512_slli_epi32(x, 16) : _mm512_and_si512(x, high))};
}
// Rounds to nearest even; any NaN stays one.
#if defined(__AVX512BF16__)
inline void store_bf16(bf16 *p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v.v)));
}
#else
inline void store_bf16(bf16 *p, Vec v) {
  __m512i x = _mm512_castps_si512(v.v);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
  __m512i y = _mm512_srli_epi32(_mm512_add_epi32(x, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  y = _mm512_mask_mov_epi32(y, _mm512_cmp_ps_mask(v.v, v.v, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc0));
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm512_cvtepi32_epi16(y));
}
#endif

constexpr int kTileSums = 24;  // Vectors of sums in a tile, of 32 registers.
constexpr int kTileRows = 12;  // Rows of the tile that many rows are cut into.

#if defined(__AVX512BF16__)

// A product of a pair is one instruction for both k.
constexpr int kPairHalves = 1;
struct Weights {
  __m512bh v;
};
struct Splat {
  __m512bh v;
};
inline Weights load_weights(const bf16 *p, int) { return {reinterpret_cast<__m512bh>(_mm512_loadu_si512(p))}; }
inline Splat splat_pair(uint32_t pair, int) {
  return {reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(pair)))};
}
inline Splat splat_pair(const bf16 *p, int half) { return splat_pair(load_pair(p), half); }
inline Vec dot(Vec sum, Weights w, Splat x) { return {_mm512_dpbf16_ps(sum.v, w.v, x.v)}; }

// A row of a tile is staged as it is: the instruction takes pairs of bf16.
using Staged = bf16;
inline Splat splat_staged(const Staged *row, int64_t pair, int half) { return splat_pair(row + 2 * pair, half); }

#else

// A product of pairs goes half by half: first the even k of all outputs, then the odd, each one fused multiply-add.
constexpr int kPairHalves = 2;
struct Weights {
  __m512 v;
};
struct Splat {
  __m512 v;
};
inline Weights load_weights(const bf16 *p, int half) { return {load_half(p, half).v}; }
inline Splat splat_pair(uint32_t pair, int half) {
  return {_mm512_set1_ps(std::bit_cast<float>(half == 0 ? pair << 16 : pair & 0xffff0000u))};
}
inline Splat splat_pair(const bf16 *p, int half) { return splat_pair(load_pair(p), half); }
inline Vec dot(Vec sum, Weights w, Splat x) { return {_mm512_fmadd_ps(w.v, x.v, sum.v)}; }

// A row of a tile is widened once, so that a broadcast is one load.
using Staged = float;
inline Splat splat_staged(const Staged *row, int64_t pair, int half) { return {_mm512_set1_ps(row[2 * pair + half])}; }

#endif
