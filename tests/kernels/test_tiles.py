"""A process that may not use AMX tiles: the library says so as it loads, and preparation does without them."""

import subprocess
import sys

import pytest
from library import has_tiles, march

# A seccomp filter: arch_prctl (158) of ARCH_REQ_XCOMP_PERM (0x1023) fails with EPERM (1), everything else is allowed.
REFUSE = """
import ctypes, struct
code = [(0x20, 0, 0, 0), (0x15, 0, 3, 158), (0x20, 0, 0, 16), (0x15, 0, 1, 0x1023), (6, 0, 0, 0x00050001),
        (6, 0, 0, 0x7FFF0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in code))
program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program) == 0
"""


def run_refused(script: str) -> subprocess.CompletedProcess[str]:
    """A Python script in such a process."""
    return subprocess.run([sys.executable, "-c", REFUSE + script], capture_output=True, text=True, check=False)


@pytest.mark.skipif("-mamx-tile" not in march(), reason="the tier under test has no tiles")
def test_a_refused_library_says_so_and_ends_the_process(kernels):
    """Before anything runs."""
    done = run_refused(f"ctypes.CDLL({kernels.library._name!r})\nprint('loaded')")
    assert done.returncode == 1
    assert "AMX" in done.stderr and "Operation not permitted" in done.stderr
    assert "loaded" not in done.stdout


@pytest.mark.skipif(not has_tiles(), reason="this machine has no AMX tiles, or its kernel refuses them")
def test_preparation_falls_back_to_avx512():
    """And chooses the tiles where they are permitted."""
    script = "from ignition.kernels.host.build import detect_tier\nprint(detect_tier().name)"
    assert run_refused(script).stdout.strip() == "x86-64-v4+avx512bf16"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "x86-64-v4+amx"
