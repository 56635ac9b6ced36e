"""Builds the host operators into one shared object and calls their entries with numpy arrays.

It needs numpy and g++ alone. `FLARE_TEST_MARCH` chooses the tier (for example `-march=x86-64-v4 -mavx512bf16`); the
default is the best that this machine runs. Tiles (AMX) need a machine that has them and a kernel that permits them.
"""

import ctypes
import mmap
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

SOURCES = Path(__file__).parents[2] / "ignition" / "kernels" / "host"
PROTO = Path(__file__).parents[2] / "helios" / "proto" / "core.proto"
FLAGS = ["-std=c++20", "-O3", "-ffp-contract=off", "-fopenmp", "-fPIC"]
TIERS = [
    "-march=x86-64-v3",
    "-march=x86-64-v4",
    "-march=x86-64-v4 -mavx512bf16",
    "-march=x86-64-v4 -mavx512bf16 -mamx-tile -mamx-bf16",
]

U = 2.0**-24  # Unit roundoff of FP32.
BF16_ULP = 2.0**-8  # A value's last bit, relative to its power of two.


def march() -> list[str]:
    """The target flags under test."""
    if chosen := os.environ.get("FLARE_TEST_MARCH"):
        return chosen.split()
    flags = Path("/proc/cpuinfo").read_text().split("flags", 1)[1].split("\n", 1)[0].split()
    wide = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= set(flags)
    return TIERS[0 if not wide else 1 if "avx512_bf16" not in flags else 3 if has_tiles() else 2].split()


def has_tiles() -> bool:
    """Whether the CPU has AMX tiles and the kernel lets this process use them."""
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    if not {"amx_tile", "amx_bf16"} <= set(Path("/proc/cpuinfo").read_text().split()):
        return False
    return ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0


def compile_all(folder: Path, target: list[str], extra: list[str]) -> list[Path]:
    """Compiles every source, two at a time; gives the objects."""

    def compile_one(source: Path) -> Path:
        made = folder / f"{source.stem}.o"
        subprocess.run(["g++", *FLAGS, *target, *extra, "-c", str(source), "-o", str(made)], check=True)
        return made

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(compile_one, sorted(SOURCES.glob("*.cpp"))))


class Kernels:
    """The entries of one build."""

    def __init__(self, folder: Path) -> None:
        """Compiles and loads the library in `folder`."""
        # As served: threads that wait for a region do not spin for long, so a shared machine does not stall them.
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        made = folder / "kernels.so"
        objects = compile_all(folder, march(), [])
        subprocess.run(["g++", "-shared", "-fopenmp", "-o", str(made), *map(str, objects)], check=True)
        self.library = ctypes.CDLL(str(made))
        self.openmp = ctypes.CDLL("libgomp.so.1")

    def call(self, name: str, *arguments: object) -> None:
        """Calls `flare_NAME`: an array is its address, None a null pointer, an int an int64, a float its FP32 bits."""
        getattr(self.library, "flare_" + name)(pack_arguments(*arguments))

    def scratch(self, name: str, *sizes: int) -> np.ndarray:
        """64-byte aligned scratch of as many bytes as `flare_NAME_scratch_bytes` says, filled with NaN bits."""
        function = getattr(self.library, f"flare_{name}_scratch_bytes")
        function.restype = ctypes.c_int64
        needed = function(*[ctypes.c_int64(size) for size in sizes])
        return aligned(needed)

    def threads(self, count: int) -> None:
        """Sets the size of the calling thread's team."""
        self.openmp.omp_set_num_threads(count)


def pack_arguments(*arguments: object) -> ctypes.Array:
    """The `void *const *` of an entry's arguments."""
    packed = (ctypes.c_uint64 * len(arguments))()
    for i, argument in enumerate(arguments):
        if argument is None:
            packed[i] = 0
        elif isinstance(argument, np.ndarray):
            assert argument.flags.c_contiguous
            packed[i] = argument.ctypes.data
        elif isinstance(argument, float):
            packed[i] = int(np.float32(argument).view(np.uint32))
        else:
            packed[i] = int(argument) & (2**64 - 1)
    return packed


def aligned(count: int) -> np.ndarray:
    """`count` bytes at a multiple of 64, all ones: NaN as any float."""
    raw = np.full(count + 64, 0xFF, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count]


def guarded(x: np.ndarray) -> np.ndarray:
    """A copy that ends where memory that must not be touched begins."""
    size = -(-x.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    whole = mmap.mmap(-1, size + mmap.PAGESIZE)
    raw = np.frombuffer(whole, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(raw.ctypes.data + size), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    made = raw[size - x.nbytes : size].view(x.dtype).reshape(x.shape)
    made[:] = x
    return made


def bf16(x: np.ndarray) -> np.ndarray:
    """FP32 values as BF16 bits, rounded to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def wide(x: np.ndarray) -> np.ndarray:
    """BF16 bits as exact float64 values."""
    return (x.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def half_ulp(x: np.ndarray) -> np.ndarray:
    """The error of rounding x to BF16: half of its last bit, one bit more for values at a power of two."""
    return np.abs(x) * BF16_ULP


def pack_reference(w: np.ndarray) -> np.ndarray:
    """The packed layout of bf16[N, K] as operators.h describes it."""
    n, k = w.shape
    full = np.zeros((-(-n // 16) * 16, -(-k // 2) * 2), np.uint16)
    full[:n, :k] = w
    return np.ascontiguousarray(full.reshape(-1, 16, full.shape[1] // 2, 2).transpose(0, 2, 1, 3))
