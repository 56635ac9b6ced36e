// The instruction sets: a vector of 16 floats, its masks, and the product of packed bf16 pairs.
//
// Three kinds, chosen by the compiler's target: AVX-512 with BF16 dot products, AVX-512F, and AVX2 with FMA. Everything above
// this file is written once for all of them, but for products in tiles (amx.h), which need the first. Invariant: each function is a fixed sequence of operations a lane, so a lane's
// bits depend on its operands alone; contraction is off, and a fused multiply-add is always written as `fma`.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "bf16.h"

inline uint32_t load_pair(const bf16 *p) {
  uint32_t pair;
  std::memcpy(&pair, p, sizeof(pair));
  return pair;
}

#if defined(__AVX512F__)
#include "simd_avx512.h"
#else
#include "simd_avx2.h"
#endif

// exp(r) of a remainder, |r| <= ln(2) / 2.
inline Vec exp_remainder(Vec r) {
  Vec p = broadcast(0.000198527617612853646f);
  p = fma(p, r, broadcast(0.00139304355252534151f));
  p = fma(p, r, broadcast(0.00833336077630519867f));
  p = fma(p, r, broadcast(0.0416664853692054749f));
  p = fma(p, r, broadcast(0.166666671633720398f));
  p = fma(p, r, broadcast(0.5f));
  return add(fma(mul(r, r), p, r), broadcast(1.0f));
}

constexpr float kLog2E = 1.442695040888963407f;
constexpr float kLn2High = 0.693145751953125f, kLn2Low = 1.428606765330187045e-06f;

// exp(x) within 1 ulp over the whole range; exp(0) is 1, exp(-inf) is 0.
inline Vec exp(Vec x) {
  x = min(broadcast(89.0f), max(broadcast(-104.0f), x));  // NaN is the second operand, so it passes through.
  const Vec n = round(mul(x, broadcast(kLog2E)));
  return scale(exp_remainder(fma(n, broadcast(-kLn2Low), fma(n, broadcast(-kLn2High), x))), n);
}

// exp(x) for x <= 0, as a softmax takes it: within 1 ulp, 0 below -87.
inline Vec exp_softmax(Vec x) {
  constexpr float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which its low bits then hold.
  const Vec shifted = fma(x, broadcast(kLog2E), broadcast(shift)), n = sub(shifted, broadcast(shift));
  const Vec p = exp_remainder(fma(n, broadcast(-kLn2Low), fma(n, broadcast(-kLn2High), x)));
  return select(greater(broadcast(-87.0f), x), zero(), add_exponent(p, shifted));
}

// The first n (0 to 16) of 16 floats, the rest being `fill`.
inline Vec load_first(const float *p, int64_t n, float fill) {
  alignas(64) float lanes[16];
  for (int64_t i = 0; i < 16; i++) lanes[i] = i < n ? p[i] : fill;
  return load(lanes);
}

// Stores the first n (0 to 16) lanes, rounded to nearest even.
inline void store_bf16_first(bf16 *p, Vec v, int64_t n) {
  alignas(32) bf16 lanes[16];
  store_bf16(lanes, v);
  std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(bf16));
}

inline void store_first(float *p, Vec v, int64_t n) {
  alignas(64) float lanes[16];
  store(lanes, v);
  std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
}
