"""How fast the CUDA kernels are where agents spend their time: long prompts, chunks after a long history, and rows that
are decoded after one.

Chunks pass through a few layers in one captured graph, beside torch.compile with torch's flash attention; fractions are
of a measured matrix product. Decoded rows attend alone; fractions are of the measured copy bandwidth.
"""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
import triton
from torch.profiler import ProfilerActivity, profile

from benchmarks.common import Row, argument_parser, report
from benchmarks.cuda_kernels import COMPILERS, capture, copy_bytes_per_s, time_ms
from benchmarks.cuda_stack import (
    GEOMETRIES,
    Geometry,
    Stack,
    flash,
    plain_chunk,
    plain_chunk_layer,
    random,
    run_attention,
)
from ignition.kernels.triton import attention

LAYERS = 4
CONTEXT_MAX = 128 * 1024
"""What a core would be prepared for; candidates follow from it."""

HISTORY = 28 * 1024
CHUNKS = [(tokens, history) for history in (0, HISTORY) for tokens in (128, 512, 2048, 4096)]
ROWS = [(requests, context) for context in (8192, 32768, 122880) for requests in (1, 4, 8)]
CACHE_BYTES_MIN = 512 << 20
"""Decoded rows go round caches of this size together, so that none is in the device's own."""

PRODUCT = 8192
REPLAYS = 10
KINDS = {"attention": ("attend", "combine_parts"), "products": ("nvjet", "gemm", "cutlass", "splitK", "cublas")}

Job = tuple[str, int, int, int, Any]
"""Geometry, rows, requests, context, configuration of attention."""


def candidates(geometry: Geometry, rows: int) -> list[Any]:
    """Attention's configurations."""
    return list(attention.candidates(rows, geometry.heads, geometry.key_heads, geometry.width, CONTEXT_MAX))


def compile_jobs(jobs: Sequence[Job]) -> None:
    """Runs configurations once, so that Triton's cache holds their code."""
    for name, rows, requests, context, config in jobs:
        run_attention(GEOMETRIES[name], rows, requests, context, config, caches=1)
    torch.cuda.synchronize()


def compile_all() -> None:
    """Compiles every configuration, in as many processes as pay."""
    jobs = [
        (geometry.name, rows, requests, context, config)
        for geometry in GEOMETRIES.values()
        for rows, requests, context in [
            *((tokens, 1, tokens) for tokens, _ in CHUNKS[:4]),
            *((requests, requests, 8192) for requests, _ in ROWS[:3]),
        ]
        for config in candidates(geometry, rows)
    ]
    with ProcessPoolExecutor(COMPILERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_jobs, [jobs[i::COMPILERS] for i in range(COMPILERS)]))


def race(geometry: Geometry, rows: int, requests: int, context: int, caches: int) -> tuple[float, Any]:
    """The fastest configuration of attention alone, and its milliseconds a call."""
    times = [
        (time_ms(capture(run_attention(geometry, rows, requests, context, config, caches)), REPLAYS) / caches, config)
        for config in candidates(geometry, rows)
    ]
    return min(times, key=lambda one: one[0])


def product_flops_per_s() -> float:
    """What a large matrix product reaches."""
    a, b = random(PRODUCT, PRODUCT), random(PRODUCT, PRODUCT)
    return 2e3 * PRODUCT**3 / time_ms(capture(lambda: torch.matmul(a, b)), REPLAYS)


def attention_flops(geometry: Geometry, tokens: int, history: int) -> int:
    """Of one layer: two products of every query with all that it sees."""
    return 4 * geometry.heads * geometry.width * (tokens * history + tokens * (tokens + 1) // 2)


def kernel_ms(graph: torch.cuda.CUDAGraph) -> dict[str, float]:
    """Milliseconds of a replay by kind of kernel; one that starts early counts from the end of the one before."""
    with profile(activities=[ProfilerActivity.CUDA]) as traced:
        graph.replay()
        torch.cuda.synchronize()
    kernels = [event for event in traced.events() if event.device_type.name == "CUDA"]
    times = dict.fromkeys([*KINDS, "rest"], 0.0)
    before = 0.0
    for end, start, name in sorted((one.time_range.end, one.time_range.start, one.name) for one in kernels):
        kinds = (kind for kind, parts in KINDS.items() if any(part in name for part in parts))
        times[next(kinds, "rest")] += (end - max(start, before)) / 1e3
        before = end
    return times


def chunk_rows(
    geometry: Geometry, tokens: int, history: int, peak: float, compiled: Callable[..., torch.Tensor]
) -> list[Row]:
    """A chunk through some layers, and its attention alone."""
    name = f"{geometry.name} {tokens} after {history}"
    alone_ms, config = race(geometry, tokens, 1, history + tokens, 1)
    stack = Stack(geometry, 1, history + tokens, LAYERS)
    plain = plain_chunk(stack, tokens, plain_chunk_layer)().clone()
    step = stack.chunk(tokens, config)
    apart = float((step()[0] - plain).abs().max() / plain.abs().max())
    graph = capture(step)
    ms, theirs_ms = time_ms(graph, REPLAYS), time_ms(capture(plain_chunk(stack, tokens, compiled)), REPLAYS)
    seen = attention_flops(geometry, tokens, history)
    flops = LAYERS * (2 * tokens * sum(geometry.part_weights(p) for p in ("qkv", "o", "gate_up", "down")) + seen)
    q = random(1, geometry.heads, tokens, geometry.width)
    k, v = (random(1, geometry.key_heads, history + tokens, geometry.width) for _ in range(2))
    flash_ms = time_ms(capture(lambda: flash(q, k, v)), REPLAYS)
    times = kernel_ms(graph)
    print(name, config, {kind: round(value, 3) for kind, value in times.items()}, flush=True)
    peer, flash_name = "torch.compile, flash attention, CUDA graph", "torch's flash attention"
    return [
        Row(f"chunk {name}", ms, "ms", more_is_better=False).beside(peer, theirs_ms),
        Row(f"product speed {name}", 1e5 * flops / ms / peak, "% of a product").beside(
            peer, 1e5 * flops / theirs_ms / peak
        ),
        Row(f"attention {name}", 1e-9 * seen / alone_ms, "TFLOP/s").beside(flash_name, 1e-9 * seen / flash_ms),
        *(Row(f"of it {kind} {name}", value, "ms", more_is_better=False) for kind, value in times.items()),
        Row(f"hidden state {name}, largest difference from plain torch", 100 * apart, "% of the largest"),
    ]


def decode_row(geometry: Geometry, requests: int, context: int, copy: float) -> Row:
    """Attention of one row of each request."""
    size = 4 * requests * context * geometry.key_heads * geometry.width
    caches = max(1, -(-CACHE_BYTES_MIN // size))
    ms, config = race(geometry, requests, requests, context, caches)
    q = random(requests, geometry.heads, 1, geometry.width)
    shape = (requests, geometry.key_heads, context, geometry.width)
    contiguous = [(random(*shape), random(*shape)) for _ in range(caches)]
    theirs_ms = time_ms(capture(lambda: [flash(q, k, v) for k, v in contiguous]), REPLAYS) / caches
    name = f"{geometry.name} B={requests} at {context}"
    print(name, config, f"{1e3 * ms:.1f} us", flush=True)
    row = Row(f"attention {name}", 1e5 * size / ms / copy, "% of copy")
    return row.beside("torch's flash attention", 1e5 * size / theirs_ms / copy)


def main() -> None:
    """Measures and reports."""
    arguments = argument_parser(__doc__).parse_args()
    torch.manual_seed(0)
    compile_all()
    copy, peak = copy_bytes_per_s(), product_flops_per_s()
    rows = [Row("copy bandwidth", copy / 1e12, "TB/s"), Row("product", peak / 1e12, "TFLOP/s")]
    for geometry in GEOMETRIES.values():
        torch._dynamo.reset()
        compiled = torch.compile(plain_chunk_layer, fullgraph=True, dynamic=True)
        for tokens, history in CHUNKS:
            rows += chunk_rows(geometry, tokens, history, peak, compiled)
            torch.cuda.empty_cache()
        for requests, context in ROWS:
            rows.append(decode_row(geometry, requests, context, copy))
            torch.cuda.empty_cache()
    versions = {"device": torch.cuda.get_device_name(), "triton": triton.__version__, "cuda": torch.version.cuda or "?"}
    report(rows, json_path=arguments.json, versions=versions)


if __name__ == "__main__":
    main()
