"""Every tier compiles without a warning, and the library needs nothing that a served core does not have."""

import subprocess

import pytest
from library import TIERS, compile_all

# GCC 12 takes its own AVX-512 headers' undefined vectors for uninitialized ones (GCC bug 105593).
FALSE_ALARMS = ["-Wno-uninitialized", "-Wno-maybe-uninitialized"]


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_compiles_without_warnings(tmp_path, tier):
    """Unoptimized, which is enough for the front end's warnings; the fixture builds the tier under test in full."""
    compile_all(tmp_path, tier.split(), ["-O0", "-Wall", "-Wextra", "-Werror", *FALSE_ALARMS])


def test_the_library_needs_the_c_and_openmp_runtimes_alone(kernels):
    """Neither libsleef nor libtorch: a served core has none."""

    def output(*command):
        return subprocess.run([*command, kernels.library._name], capture_output=True, text=True, check=True).stdout

    text = output("readelf", "-d")
    needed = {line.split("[")[1].split(".so")[0] for line in text.splitlines() if "NEEDED" in line}
    assert needed <= {"libstdc++", "libm", "libgomp", "libgcc_s", "libc", "ld-linux-x86-64"}
    undefined = output("nm", "-D", "-u")
    assert "leef" not in undefined and "c10" not in undefined
