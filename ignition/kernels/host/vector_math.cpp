// What Inductor's generated kernels call outside of themselves: Sleef's names and PyTorch's check failure.
//
// Defined here so that a core's module needs neither libsleef nor libtorch. The exponential is ours; the rest is rare in a
// forward (rotary angles once a step) and goes lane by lane through libm in FP64, which is right for any argument.
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

#if defined(__AVX512F__)
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
  FLARE_SLEEF(Sleef_sinf##width##_u10, Lanes, std::sin)                                                \
  FLARE_SLEEF(Sleef_sinf##width##_u35, Lanes, std::sin)                                                \
  FLARE_SLEEF(Sleef_cosf##width##_u10, Lanes, std::cos)                                                \
  FLARE_SLEEF(Sleef_cosf##width##_u35, Lanes, std::cos)                                                \
  FLARE_SLEEF(Sleef_logf##width##_u10, Lanes, std::log)                                                \
  FLARE_SLEEF(Sleef_log1pf##width##_u10, Lanes, std::log1p)                                            \
  FLARE_SLEEF(Sleef_tanhf##width##_u10, Lanes, std::tanh)                                              \
  FLARE_SLEEF(Sleef_erff##width##_u10, Lanes, std::erf)

FLARE_SLEEF_ALL(8, __m256)
#if defined(__AVX512F__)
FLARE_SLEEF_ALL(16, __m512)
#endif
