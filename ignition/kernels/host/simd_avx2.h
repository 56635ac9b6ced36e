// AVX2 with FMA: a vector of 16 floats is two registers. Included by simd.h alone.
#pragma once

struct Vec {
  __m256 lo, hi;
};
struct Mask {
  __m256 lo, hi;
};

inline Vec broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Vec load(const float *p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float *p, Vec v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
inline Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Vec sub(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Vec div(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
// Where a lane of either is NaN, min and max give the second operand's.
inline Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Vec round(Vec a) {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, nearest), _mm256_round_ps(a.hi, nearest)};
}

inline float first(Vec v) { return _mm256_cvtss_f32(v.lo); }
inline float reduce_max(Vec v) {
  __m256 a = _mm256_max_ps(v.lo, v.hi);
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}
inline float reduce_add(Vec v) {
  __m256 a = _mm256_add_ps(v.lo, v.hi);
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

// v * 2^n in two steps, so that a subnormal result is rounded and not lost.
inline __m256 scale_half(__m256 v, __m256i n) {
  __m256i a = _mm256_srai_epi32(n, 1), b = _mm256_sub_epi32(n, a), bias = _mm256_set1_epi32(127);
  __m256 x = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(a, bias), 23));
  __m256 y = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(b, bias), 23));
  return _mm256_mul_ps(_mm256_mul_ps(v, x), y);
}
inline Vec scale(Vec v, Vec n) {
  return {scale_half(v.lo, _mm256_cvtps_epi32(n.lo)), scale_half(v.hi, _mm256_cvtps_epi32(n.hi))};
}

// p * 2^n by its exponent's bits, n being the low bits of `shifted`; the result must be normal.
inline __m256 add_exponent_half(__m256 p, __m256 shifted) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
}
inline Vec add_exponent(Vec p, Vec shifted) {
  return {add_exponent_half(p.lo, shifted.lo), add_exponent_half(p.hi, shifted.hi)};
}

inline Mask greater_equal(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ)};
}
inline Mask greater(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ)};
}
inline Mask both(Mask a, Mask b) { return {_mm256_and_ps(a.lo, b.lo), _mm256_and_ps(a.hi, b.hi)}; }
inline Vec select(Mask m, Vec yes, Vec no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}
inline uint32_t bits(Mask m) {
  return static_cast<uint32_t>(_mm256_movemask_ps(m.lo)) | static_cast<uint32_t>(_mm256_movemask_ps(m.hi)) << 8;
}
inline __m256 mask_half(uint32_t low_bits) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  __m256i b = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(low_bits)), lane);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(b, lane));
}
inline Mask mask_of(uint32_t lane_bits) { return {mask_half(lane_bits), mask_half(lane_bits >> 8)}; }

inline Vec load_counts(const int32_t *p) {
  const __m256i *q = reinterpret_cast<const __m256i *>(p);
  return {_mm256_cvtepi32_ps(_mm256_loadu_si256(q)), _mm256_cvtepi32_ps(_mm256_loadu_si256(q + 1))};
}

inline __m256 widen_half(__m128i x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
inline Vec load_bf16(const bf16 *p) {
  const __m128i *q = reinterpret_cast<const __m128i *>(p);
  return {widen_half(_mm_loadu_si128(q)), widen_half(_mm_loadu_si128(q + 1))};
}
inline __m256 unpack_half(const bf16 *p, int half) {
  __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
  return _mm256_castsi256_ps(half == 0 ? _mm256_slli_epi32(x, 16) : _mm256_blend_epi16(_mm256_setzero_si256(), x, 0xaa));
}
// The first or the second values of 16 pairs.
inline Vec load_half(const bf16 *p, int half) { return {unpack_half(p, half), unpack_half(p + 16, half)}; }
inline __m256i narrow_half(__m256 v) {
  __m256i x = _mm256_castps_si256(v);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
  __m256i y = _mm256_srli_epi32(_mm256_add_epi32(x, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(y, _mm256_set1_epi32(0x7fc0), nan);
}
inline void store_bf16(bf16 *p, Vec v) {
  __m256i x = _mm256_packus_epi32(narrow_half(v.lo), narrow_half(v.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm256_permute4x64_epi64(x, 0xd8));
}

// A product of pairs goes half by half: first the even k of all outputs, then the odd, each one fused multiply-add.
constexpr int kPairHalves = 2;
constexpr int kTileSums = 5;  // Vectors of sums in a tile: 10 of the 16 registers. The compiler spills at 6.
constexpr int kTileRows = 5;  // Rows of the tile that many rows are cut into.

struct Weights {
  __m256 lo, hi;
};
struct Splat {
  __m256 v;
};
inline Weights load_weights(const bf16 *p, int half) { return {unpack_half(p, half), unpack_half(p + 16, half)}; }
inline Splat splat_pair(uint32_t pair, int half) {
  return {_mm256_set1_ps(std::bit_cast<float>(half == 0 ? pair << 16 : pair & 0xffff0000u))};
}
inline Splat splat_pair(const bf16 *p, int half) {
  __m256i x = _mm256_set1_epi32(static_cast<int>(load_pair(p)));
  return {_mm256_castsi256_ps(half == 0 ? _mm256_slli_epi32(x, 16)
                                        : _mm256_blend_epi16(_mm256_setzero_si256(), x, 0xaa))};
}
inline Vec dot(Vec sum, Weights w, Splat x) {
  return {_mm256_fmadd_ps(w.lo, x.v, sum.lo), _mm256_fmadd_ps(w.hi, x.v, sum.hi)};
}

// A row of a tile is widened once, so that a broadcast is one load.
using Staged = float;
inline Splat splat_staged(const Staged *row, int64_t pair, int half) { return {_mm256_broadcast_ss(row + 2 * pair + half)}; }
