"""Host operators alone: bandwidth, arithmetic rate and time at SmolLM2-135M's shapes.

    python benchmarks/kernels.py [--threads N] [--json PATH]

Each number is the best of many calls; weights and pages exceed the caches where a served model's do. Peers run
in turn with ours in the same process: a plain multi-stream read of memory for one row, NumPy's FP32 matrix product
(OpenBLAS) for many. On a busy machine compare ratios only, of one thread.
"""

import argparse
import ctypes
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
arguments.add_argument("--json", type=Path)
options = arguments.parse_args()
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(options.threads)  # Before NumPy loads.

import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kernels"))

from library import (  # type: ignore[import-not-found]  # noqa: E402
    Kernels,
    aligned,
    bf16,
    march,
    pack_arguments,
    wide,
)
from sampling import Launch  # type: ignore[import-not-found]  # noqa: E402

READ = """
#include <immintrin.h>
#include <cstdint>
extern "C" float read_all(const float *p, int64_t n) {
  float total = 0;
#pragma omp parallel for schedule(static) reduction(+ : total)
  for (int64_t part = 0; part < n / 65536; part++) {
    __m256 s[8] = {};
    const float *from = p + part * 65536;
    for (int64_t i = 0; i < 16384; i += 16)
      for (int j = 0; j < 4; j++) {
        _mm_prefetch((const char *)(from + j * 16384 + i + 256), _MM_HINT_T0);
        s[2 * j] = _mm256_add_ps(s[2 * j], _mm256_load_ps(from + j * 16384 + i));
        s[2 * j + 1] = _mm256_add_ps(s[2 * j + 1], _mm256_load_ps(from + j * 16384 + i + 8));
      }
    for (auto &x : s) total += x[0];
  }
  return total;
}
"""


def best_s(*functions: Callable[[], object], seconds: float = 1.5) -> list[float]:
    """The least time of each function, called in turn."""
    best = [float("inf")] * len(functions)
    start = time.perf_counter()
    while time.perf_counter() - start < seconds * len(functions):
        for i, function in enumerate(functions):
            begin = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - begin)
    return best


class Bench:
    """The library, random data and the rows of the table."""

    def __init__(self, folder: Path) -> None:
        """Builds the operators and the read loop."""
        self.kernels, self.rng = Kernels(folder), np.random.default_rng(0)
        self.rows: list[dict[str, object]] = []
        self.kernels.threads(options.threads)
        (folder / "read.cpp").write_text(READ)
        made = folder / "read.so"
        command = ["g++", "-O3", "-mavx2", "-fopenmp", "-shared", "-fPIC", str(folder / "read.cpp"), "-o", str(made)]
        subprocess.run(command, check=True)
        self.read_all = ctypes.CDLL(str(made)).read_all
        self.values = bf16(self.rng.standard_normal(1 << 22) * 0.05)

    def random(self, count: int) -> np.ndarray:
        """`count` BF16 values at a multiple of 64 bytes."""
        made: np.ndarray = aligned(2 * count).view(np.uint16)
        made[:] = np.resize(self.values, count)
        return made

    def row(self, name: str, value: float, unit: str, peer: str = "", peer_value: float | None = None) -> None:
        """Prints and keeps a result; a ratio above 1 means that Flare is better."""
        less = unit in ("ms", "us")
        ratio = None if not peer_value else peer_value / value if less else value / peer_value
        self.rows.append(
            {"name": name, "value": value, "unit": unit, "peer": peer, "peer_value": peer_value, "ratio": ratio}
        )
        against = f"  {peer} {peer_value:.1f} (ratio {ratio:.2f})" if ratio else ""
        print(f"{name:42} {value:9.2f} {unit}{against}", flush=True)

    def one_row(self, t: int, n: int, k: int) -> None:
        """Few rows over weights that memory holds, against reading as many bytes."""
        copies = max(1, (160 << 20) // (2 * n * k))
        weights, x, y = self.random(n * k * copies), self.random(t * k), np.zeros((t, n), np.uint16)
        calls = [pack_arguments(x, w, None, y, None, t, n, k) for w in np.split(weights, copies)]
        floats = weights.view(np.float32)

        def ours() -> None:
            for call in calls:
                self.kernels.library.flare_linear(call)

        def read() -> None:
            self.read_all(ctypes.c_void_p(floats.ctypes.data), ctypes.c_int64(len(floats)))

        mine, theirs = best_s(ours, read)
        self.row(f"linear {t} x {n} x {k}", weights.nbytes / mine / 1e9, "GB/s", "read", weights.nbytes / theirs / 1e9)

    def many_rows(self, t: int, n: int, k: int) -> None:
        """A tile product against OpenBLAS in FP32."""
        w, x, y = self.random(n * k), self.random(t * k), np.zeros((t, n), np.uint16)
        scratch = self.kernels.scratch("linear", t, n, k)
        call = pack_arguments(x, w, None, y, scratch, t, n, k)
        x32, w32 = wide(x).astype(np.float32).reshape(t, k), wide(w).astype(np.float32).reshape(k, n)
        y32 = np.zeros((t, n), np.float32)
        mine, theirs = best_s(lambda: self.kernels.library.flare_linear(call), lambda: np.matmul(x32, w32, out=y32))
        operations = 2 * t * n * k / 1e9
        self.row(f"linear {t} x {n} x {k}", operations / mine, "GFLOP/s", "OpenBLAS FP32", operations / theirs)

    def attention(self, t: int, context: int, lanes: int) -> None:
        """Prefill of the last t tokens of a context (no lanes), or one decode row for each of `lanes` contexts."""
        hq, hk, d, layers = 9, 3, 64, 8
        slots_count, width = max(1, lanes), -(-context // 64)
        segment = hk * d * 128
        pages = [self.random(slots_count * width * segment) for _ in range(layers)]
        table = np.arange(slots_count * width, dtype=np.int32)
        slots = np.arange(lanes) if lanes else np.zeros(t, np.int64)
        positions = np.full(lanes, context - 1) if lanes else np.arange(context - t, context)
        q, y = self.random(t * hq * d), np.zeros(t * hq * d, np.uint16)
        scratch = self.kernels.scratch("attention", t, hq, d, context)
        calls = [
            pack_arguments(
                q,
                slots,
                positions,
                table,
                page,
                y,
                scratch,
                t,
                hq,
                hk,
                d,
                width,
                2 * segment,
                0,
                segment,
                0.125,
                0,
                len(scratch),
            )  # fmt: skip
            for page in pages
        ]

        def ours() -> None:
            for call in calls:
                self.kernels.library.flare_attention(call)

        name = f"attention decode {lanes} x {context}" if lanes else f"attention prefill {t} of {context}"
        self.row(name, best_s(ours)[0] / layers * 1e3, "ms")

    def sample(self, lanes: int, **setting: float) -> None:
        """One sampling launch."""
        launch = Launch(self.kernels, lanes, lanes, 49152)
        launch.logits[:] = 3 * self.rng.standard_normal((lanes, 49152))
        for lane in range(lanes):
            launch.request(lane, seed=lane, **setting)
            launch.lane(lane, lane)
        called = " ".join(f"{name}={value}" for name, value in setting.items())
        self.row(f"sample {lanes} {called}".strip(), best_s(launch.run, seconds=0.5)[0] * 1e6, "us")


def main() -> None:
    """Prints the table and writes it where asked."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for t, n, k in [(1, 576, 576), (1, 1536, 576), (1, 576, 1536), (1, 49152, 576), (2, 1536, 576), (4, 1536, 576)]:
            bench.one_row(t, n, k)
        for t, n, k in [(16, 1536, 576), (64, 1536, 576), (512, 576, 576), (512, 1536, 576), (512, 576, 1536)]:
            bench.many_rows(t, n, k)
        for t, context in [(512, 512), (512, 2048), (16, 4096), (256, 2048), (256, 8192)]:
            bench.attention(t, context, 0)
        for context, lanes in [(512, 1), (4096, 1), (8192, 1), (2048, 4)]:
            bench.attention(lanes, context, lanes)
        bench.sample(1)
        bench.sample(1, temperature=0.7, top_k=20, top_p=0.95)
        bench.sample(1, top_p=0.95)
        bench.sample(1, repetition=1.1, frequency=0.1, top_p=0.9, min_p=0.01)
        bench.sample(4, logprobs=5)
    if options.json:
        versions = {"python": platform.python_version(), "numpy": np.__version__, "target": " ".join(march())}
        machine = {"cpu": platform.processor() or platform.machine(), "threads": options.threads}
        made = {"machine": machine, "versions": versions, "date": datetime.date.today().isoformat(), "rows": bench.rows}
        options.json.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
