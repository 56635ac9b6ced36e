// What Inductor's generated kernels call outside of themselves: Sleef's names and PyTorch's check failure.
//
// Defined here so that a core's module needs neither libsleef nor libtorch. The exponential, sine and cosine are ours; the rest
// is rare in a forward and goes lane by lane through libm in FP64, which is right for any argument. A lane's bits depend on
// its own operands alone.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "simd.h"

namespace c10::detail {

[[noreturn]] void torchCheckFail(const char *function, const char *file, uint32_t line, const char *message) {
  std::fprintf(stderr, "check failed in %s at %s:%u: %s\n", function, file, line, message);
  std::abort();
}
[[noreturn]] void torchCheckFail(const char *function, const char *file, uint32_t line, const std::string &message) {
  torchCheckFail(function, file, line, message.c_str());
}

}  // namespace c10::detail

namespace {

template <typename Lanes, typename F>
Lanes lane_by_lane(Lanes x, const F &f) {
  alignas(64) float lanes[sizeof(Lanes) / sizeof(float)];
  std::memcpy(lanes, &x, sizeof(x));
  for (float &lane : lanes) lane = static_cast<float>(f(static_cast<double>(lane)));
  std::memcpy(&x, lanes, sizeof(x));
  return x;
}

template <typename Lanes>
Lanes power(Lanes x, Lanes y) {
  alignas(64) float base[sizeof(Lanes) / sizeof(float)], exponent[sizeof(Lanes) / sizeof(float)];
  std::memcpy(base, &x, sizeof(x));
  std::memcpy(exponent, &y, sizeof(y));
  for (size_t i = 0; i < sizeof(Lanes) / sizeof(float); i++) 
    base[i] = static_cast<float>(std::pow(static_cast<double>(base[i]), static_cast<double>(exponent[i])));
  std::memcpy(&x, base, sizeof(x));
  return x;
}

// Eight lanes of a rotary angle.
using Floats = float __attribute__((vector_size(32)));
using Doubles = double __attribute__((vector_size(64)));
using Integers = int64_t __attribute__((vector_size(64)));

// sin(x + quadrants * pi / 2) in FP64 for |x| up to 2^20: the polynomials err by 2^-37 of the value.
Floats sine(Floats x, int64_t quadrants) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer, which its low bits then hold.
  // The high part of pi / 2 has 33 bits, so that its multiples up to 2^20 are exact.
  constexpr double kHigh = 1.57079632673412561417e+00, kLow = 6.07710050650619224932e-11;
  const Doubles angle = __builtin_convertvector(x, Doubles);
  const Doubles shifted = angle * (2 / M_PI) + kRound, turns = shifted - kRound;
  const Integers quadrant = reinterpret_cast<Integers>(shifted) + quadrants;
  const Doubles r = (angle - turns * kHigh) - turns * kLow, z = r * r;
  Doubles sin = z * (-1.0 / 39916800) + 1.0 / 362880;
  sin = ((sin * z - 1.0 / 5040) * z + 1.0 / 120) * z - 1.0 / 6;
  Doubles cos = z * (1.0 / 479001600) - 1.0 / 3628800;
  cos = (((cos * z + 1.0 / 40320) * z - 1.0 / 720) * z + 1.0 / 24) * z - 0.5;
  const Doubles value = (quadrant & 1) != 0 ? cos * z + 1.0 : sin * z * r + r;
  return __builtin_convertvector((quadrant & 2) != 0 ? -value : value, Floats);
}

template <typename F>
__m256 sine(__m256 x, int64_t quadrants, const F &exact) {
  constexpr float kReduced = 1 << 20;
  const Floats lanes = reinterpret_cast<Floats>(x), fast = sine(lanes, quadrants);
  const auto in_range = lanes >= -kReduced && lanes <= kReduced;
  if (_mm256_movemask_ps(reinterpret_cast<__m256>(in_range)) == 0xff) return reinterpret_cast<__m256>(fast);
  return reinterpret_cast<__m256>(in_range ? fast : reinterpret_cast<Floats>(lane_by_lane(x, exact)));
}
__m256 sine(__m256 x) {
  return sine(x, 0, [](double lane) { return std::sin(lane); });
}
__m256 cosine(__m256 x) {
  return sine(x, 1, [](double lane) { return std::cos(lane); });
}

#if defined(__AVX512F__)
__m512 halves(__m512 x, __m256 (*function)(__m256)) {
  const __m512 low = _mm512_castps256_ps512(function(_mm512_castps512_ps256(x)));
  return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castps_pd(low), _mm256_castps_pd(function(upper(Vec{x}))), 1));
}
__m512 sine(__m512 x) { return halves(x, sine); }
__m512 cosine(__m512 x) { return halves(x, cosine); }

__m256 exponential(__m256 x) { return _mm512_castps512_ps256(exp(Vec{_mm512_castps256_ps512(x)}).v); }
__m512 exponential(__m512 x) { return exp(Vec{x}).v; }
#else
__m256 exponential(__m256 x) { return exp(Vec{x, x}).lo; }
#endif

}  // namespace

// Sleef's name for a function of one argument, at the accuracy that its suffix asks for or better.
#define FLARE_SLEEF(symbol, Lanes, function) \
  extern "C" Lanes symbol(Lanes x) {         \
    return lane_by_lane(x, [](double lane) { return function(lane); }); \
  }

#define FLARE_SLEEF_ALL(width, Lanes)                                                                  \
  extern "C" Lanes Sleef_expf##width##_u10(Lanes x) { return exponential(x); }                         \
  extern "C" Lanes Sleef_powf##width##_u10(Lanes x, Lanes y) { return power(x, y); }                   \
  FLARE_SLEEF(Sleef_exp2f##width##_u10, Lanes, std::exp2)                                              \
  FLARE_SLEEF(Sleef_expm1f##width##_u10, Lanes, std::expm1)                                            \
  extern "C" Lanes Sleef_sinf##width##_u10(Lanes x) { return sine(x); }                                \
  extern "C" Lanes Sleef_sinf##width##_u35(Lanes x) { return sine(x); }                                \
  extern "C" Lanes Sleef_cosf##width##_u10(Lanes x) { return cosine(x); }                              \
  extern "C" Lanes Sleef_cosf##width##_u35(Lanes x) { return cosine(x); }                              \
  FLARE_SLEEF(Sleef_logf##width##_u10, Lanes, std::log)                                                \
  FLARE_SLEEF(Sleef_log1pf##width##_u10, Lanes, std::log1p)                                            \
  FLARE_SLEEF(Sleef_tanhf##width##_u10, Lanes, std::tanh)                                              \
  FLARE_SLEEF(Sleef_erff##width##_u10, Lanes, std::erf)

FLARE_SLEEF_ALL(8, __m256)
#if defined(__AVX512F__)
FLARE_SLEEF_ALL(16, __m512)
#endif
