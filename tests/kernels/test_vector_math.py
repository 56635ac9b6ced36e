"""The functions that generated kernels call, against float64 libm."""

import ctypes
import subprocess

import numpy as np
import pytest
from library import march

HARNESS = """
#include <immintrin.h>
#define UNARY(name) extern "C" __m256 name(__m256); \\
  extern "C" void call_##name(const float *x, float *y, long n) {{ \\
    for (long i = 0; i < n; i += 8) _mm256_storeu_ps(y + i, name(_mm256_loadu_ps(x + i))); }}
{unary}
extern "C" __m256 Sleef_powf8_u10(__m256, __m256);
extern "C" void call_pow(const float *x, const float *z, float *y, long n) {{
  for (long i = 0; i < n; i += 8)
    _mm256_storeu_ps(y + i, Sleef_powf8_u10(_mm256_loadu_ps(x + i), _mm256_loadu_ps(z + i))); }}
"""

FUNCTIONS = {
    "Sleef_expf8_u10": (np.exp, -110, 90),
    "Sleef_exp2f8_u10": (np.exp2, -150, 129),
    "Sleef_expm1f8_u10": (np.expm1, -20, 88),
    "Sleef_sinf8_u35": (np.sin, -1e6, 1e6),
    "Sleef_cosf8_u35": (np.cos, -1e6, 1e6),
    "Sleef_sinf8_u10": (np.sin, -10, 10),
    "Sleef_cosf8_u10": (np.cos, -10, 10),
    "Sleef_logf8_u10": (np.log, 1e-30, 1e30),
    "Sleef_log1pf8_u10": (np.log1p, -0.999, 1e6),
    "Sleef_tanhf8_u10": (np.tanh, -10, 10),
    "Sleef_erff8_u10": (np.vectorize(__import__("math").erf), -5, 5),
}


@pytest.fixture(scope="module")
def functions(kernels, tmp_path_factory):
    """A caller of the library's vector functions."""
    folder = tmp_path_factory.mktemp("vector_math")
    source, made = folder / "harness.cpp", folder / "harness.so"
    source.write_text(HARNESS.format(unary="\n".join(f"UNARY({name})" for name in FUNCTIONS)))
    library = kernels.library._name
    subprocess.run(["g++", "-O2", *march(), "-shared", "-fPIC", str(source), library, "-o", str(made)], check=True)
    return ctypes.CDLL(str(made))


def call(function, *arrays):
    """The function over arrays of a multiple of eight floats."""
    y = np.empty_like(arrays[0])
    function(*[ctypes.c_void_p(a.ctypes.data) for a in (*arrays, y)], ctypes.c_long(len(y)))
    return y


def ulps(found, exact):
    """The error in units of the last bit of the exact value, the least subnormal being one."""
    with np.errstate(over="ignore"):
        spacing = np.maximum(np.abs(np.spacing(exact.astype(np.float32))).astype(np.float64), 2.0**-149)
    finite = np.isfinite(spacing)
    return np.abs(found.astype(np.float64) - exact)[finite] / spacing[finite]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_within_one_ulp(functions, name):
    """At 2^18 points of its range: what Sleef's u10 promises."""
    exact, low, high = FUNCTIONS[name]
    x = np.linspace(low, high, 1 << 18).astype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        expected = exact(x.astype(np.float64))
    assert ulps(call(getattr(functions, "call_" + name), x), expected).max() <= 1.0


def test_any_angle_has_its_sine_and_no_neighbor_changes_it(functions):
    """Beyond the reduced range, at its ends, and where there is none."""
    x = np.array([1e7, -3e30, 2.0**20, -(2.0**20), 0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, 3e-39] * 2, np.float32)
    for name in ("sin", "cos"):
        function = getattr(functions, f"call_Sleef_{name}f8_u35")
        with np.errstate(invalid="ignore"):
            exact = getattr(np, name)(x.astype(np.float64))
        y = call(function, x)
        assert np.array_equal(np.isnan(y), np.isnan(exact))
        assert np.nanmax(ulps(y, exact)) <= 1.0
        alone = np.concatenate([call(function, np.full(8, one, np.float32))[:1] for one in x])
        assert np.array_equal(alone, y, equal_nan=True)


def test_power_is_within_one_ulp(functions):
    """Positive bases."""
    rng = np.random.default_rng(0)
    x, z = rng.uniform(0.01, 30, 1 << 14).astype(np.float32), rng.uniform(-8, 8, 1 << 14).astype(np.float32)
    assert ulps(call(functions.call_pow, x, z), x.astype(np.float64) ** z.astype(np.float64)).max() <= 1.0


def test_the_exponential_has_the_right_ends(functions):
    """Exactly one at zero, zero at -inf, infinity beyond the range, NaN for NaN."""
    x = np.array([0, -0.0, -np.inf, np.inf, 89, -104, np.nan, -1e30], np.float32)
    y = call(functions.call_Sleef_expf8_u10, x)
    assert np.array_equal(y, np.array([1, 1, 0, np.inf, np.inf, 0, np.nan, 0], np.float32), equal_nan=True)
