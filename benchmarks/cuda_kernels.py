"""How fast the CUDA kernels are beside the device's memory: alone, and as a whole decode step in one captured graph.

Every configuration of every kernel is raced inside the step; then the best step is timed beside plain torch.compile in
a graph of its own, and its logits are compared with plain torch's. Fractions are of the measured copy bandwidth.
"""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
import triton

from benchmarks.common import Row, argument_parser, report
from benchmarks.cuda_stack import (
    GEOMETRIES,
    PARTS,
    Configs,
    Geometry,
    Requests,
    Stack,
    plain_layer,
    plain_step,
    random,
    request_fields,
    run_part,
)

CONTEXT = 512
COUNTS = (1, 2, 4, 8)
COMPILED_COUNTS = (1,)
"""Rows that plain torch is compiled for, which takes long."""

COPY_FLOATS = 1 << 28
RACE_LAYERS_MAX = 16
"""A deeper model's kernels are raced in a cut of it."""

COMPILERS = 14
REPLAYS = 50
LAYERS_ALONE = 8
"""Distinct weights that a kernel alone goes round, so that none is in the cache."""

FILTERS = {"no filter": (0, 1.0), "top-k 50": (50, 1.0), "top-p 0.95": (0, 0.95), "top-k 50, top-p 0.95": (50, 0.95)}

Job = tuple[str, str, int, Any]
"""Geometry, part, rows, configuration."""


def capture(step: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of one step, after one outside of it that compiles and loads."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    torch.cuda.synchronize()
    return graph


def time_ms(graph: torch.cuda.CUDAGraph, replays: int = REPLAYS) -> float:
    """Milliseconds a replay, of replays one after another."""
    for _ in range(5):
        graph.replay()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / replays


def copy_bytes_per_s() -> float:
    """What a kernel that reads and writes memory reaches."""
    source = torch.zeros(COPY_FLOATS, device="cuda")
    target = torch.empty_like(source)
    return 2e3 * source.nbytes / time_ms(capture(lambda: torch.mul(source, 1.0, out=target)), 20)


def compile_jobs(jobs: Sequence[Job]) -> None:
    """Runs configurations once, so that Triton's cache holds their code."""
    for name, part, count, config in jobs:
        run_part(GEOMETRIES[name], part, count, config, weights=1)
    torch.cuda.synchronize()


def compile_all(counts: Sequence[int]) -> None:
    """Compiles every configuration, in as many processes as pay."""
    jobs = [
        (geometry.name, part, count, config)
        for geometry in GEOMETRIES.values()
        for count in counts
        for part in PARTS
        if part != "attention"
        for config in geometry.candidates(part, count, CONTEXT)
    ]
    parts = 4 * COMPILERS
    with ProcessPoolExecutor(COMPILERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_jobs, [jobs[i::parts] for i in range(parts)]))


def race(stack: Stack) -> dict[str, Any]:
    """The fastest configuration of each part, one part after another, inside the whole step."""
    every = {part: stack.geometry.candidates(part, stack.count, CONTEXT) for part in PARTS}
    best = {part: configs[0] for part, configs in every.items()}
    for part, configs in every.items():
        times = [time_step(stack, best | {part: config}, 20) for config in configs]
        best[part] = configs[times.index(min(times))]
    return best


def time_step(stack: Stack, configs: Configs, replays: int) -> float:
    """Milliseconds a decode step, the first at the stack's context."""
    stack.rewind()
    graph = capture(lambda: stack.step(configs))
    stack.rewind()
    return time_ms(graph, replays)


def step_rows(geometry: Geometry, count: int, copy: float) -> tuple[list[Row], dict[str, Any]]:
    """A whole step beside plain torch.compile's, and how far the logits lie apart."""
    cut = Stack(geometry, count, CONTEXT, min(geometry.layers, RACE_LAYERS_MAX))
    best = race(cut)
    stack = cut if len(cut.layers) == geometry.layers else Stack(geometry, count, CONTEXT)
    del cut
    plain = plain_step(stack)().clone()
    stack.rewind()
    stack.step(best)
    apart = float((stack.requests.logits - plain).abs().max() / plain.abs().max())
    ms = time_step(stack, best, REPLAYS)
    name = f"{geometry.name} B={count}"
    rows = [
        Row(f"step {name}", ms, "ms", more_is_better=False),
        Row(f"bandwidth {name}", 100 * geometry.weight_bytes * 1e3 / ms / copy, "% of copy"),
        Row(f"logits {name}, largest difference from plain torch", 100 * apart, "% of the largest"),
    ]
    if count in COMPILED_COUNTS:
        compiled = plain_step(stack, torch.compile(plain_layer, fullgraph=True, dynamic=False))
        theirs_ms = time_ms(capture(compiled))
        theirs = 100 * geometry.weight_bytes * 1e3 / theirs_ms / copy
        peer = "torch.compile + CUDA graph, no sampling"
        rows[:2] = [rows[0].beside(peer, theirs_ms), rows[1].beside(peer, theirs)]
    return rows, best


def kernel_rows(geometry: Geometry, configs: Configs, copy: float) -> list[Row]:
    """Each projection of one row alone, one launch after another over distinct weights."""
    rows = []
    for part in PARTS:
        if part == "attention":
            continue
        run = run_part(geometry, part, 1, configs[part], LAYERS_ALONE)
        ms = time_ms(capture(run)) / LAYERS_ALONE
        size = 2 * geometry.part_weights(part)
        rows.append(Row(f"{geometry.name} {part} alone", 100 * size * 1e3 / ms / copy, "% of copy"))
    return rows


def sampling_rows(geometry: Geometry) -> list[Row]:
    """Sampling of one lane by what it filters."""
    requests = Requests(1, geometry.vocabulary)
    requests.logits.copy_(150 * random(1, geometry.vocabulary).float())
    lanes = torch.tensor([[0, 1, 1, 0]], device="cuda")
    rows = []
    for name, (top_k, top_p) in FILTERS.items():
        requests.fields.copy_(torch.tensor([request_fields(0, 0, top_k)]))
        requests.parameters[:, 1] = top_p
        rows.append(Row(f"sample B=1, {name}", 1e3 * time_ms(capture(lambda: requests.sample(lanes))), "us"))
    return rows


def main() -> None:
    """Measures and reports."""
    arguments = argument_parser(__doc__).parse_args()
    torch.manual_seed(0)
    compile_all(COUNTS)
    copy = copy_bytes_per_s()
    rows = [Row("copy bandwidth", copy / 1e12, "TB/s")]
    for geometry in GEOMETRIES.values():
        for count in COUNTS:
            measured, best = step_rows(geometry, count, copy)
            rows += measured
            print(geometry.name, count, {part: str(config) for part, config in best.items()}, flush=True)
            if count == 1:
                rows += kernel_rows(geometry, best, copy)
            torch.cuda.empty_cache()
    rows += sampling_rows(GEOMETRIES["1B"])
    versions = {"device": torch.cuda.get_device_name(), "triton": triton.__version__, "cuda": torch.version.cuda or "?"}
    report(rows, json_path=arguments.json, versions=versions)


if __name__ == "__main__":
    main()
