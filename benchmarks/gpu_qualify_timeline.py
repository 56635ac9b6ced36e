"""Where the time of a core's programs goes: each kernel's part of a step, as the device's own trace has it.

The core is loaded and launched as a server does it; torch is here for its profiler alone. Kernels overlap, so a
kernel's part of a step is what it adds to it: from the latest end before its own to its own. The parts and the idle
time add up to the step.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_qualify_rows import HISTORY_TOKENS, merge
from ignition.export import core_pb2
from ignition.export.corefile import CoreReader
from ignition.export.verify import CoreMachine, limits_of
from ignition.preparation.driver import Driver

STEPS = 16
PAGES = 1024
TRACED = ("kernel", "gpu_memcpy", "gpu_memset")


def main() -> None:
    """Traces decode steps of one request, and one full chunk of a prompt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("core", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    torch.cuda.init()  # type: ignore[no-untyped-call]
    with CoreReader(arguments.core) as reader:
        contract = core_pb2.PreparedContract.FromString(reader.read("contract"))
    limits = limits_of(contract, pages=PAGES)
    machine = CoreMachine(arguments.core, rows=1 + limits.slots * contract.state.rows_per_slot, pages=PAGES)
    driver = Driver(machine, limits)
    chunk = limits.prefill_capacities[-1]
    tokens = np.random.default_rng(5).integers(0, limits.vocabulary, chunk)

    warm = driver.admit(0, tokens)
    driver.prefill(warm, chunk)
    driver.reset(warm)
    prompt = driver.admit(0, tokens)
    prefill = trace(lambda: driver.prefill(prompt, chunk, sample=True), count=1)
    driver.reset(prompt)

    history = min(HISTORY_TOKENS, chunk)
    request = driver.admit(0, tokens[:history])
    driver.prefill(request, history, sample=True)
    driver.decode([request])
    decode = trace(lambda: driver.decode([request]), count=STEPS)
    machine.close()
    merge(arguments.json, {"timeline_us": {"decode.1": decode, f"prefill.{chunk}": prefill}})


@dataclass(frozen=True)
class Span:
    """One node of a graph, on the device's clock, in microseconds."""

    name: str
    begin: float
    end: float


def trace(launch: Callable[[], None], *, count: int) -> dict[str, Any]:
    """Launches under the profiler; one launch's time, and each kernel's part of it, largest first."""
    with profile(activities=[ProfilerActivity.CUDA]) as traced:
        for _ in range(count):
            launch()
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        traced.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    spans = [Span(e["name"], e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") in TRACED]
    return summary(programs(spans), count)


def programs(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Launches apart: what the host uploads stands between them, and copies from the host belong to none."""
    launch: list[Span] = []
    for span in sorted(spans, key=lambda one: one.begin):
        if "HtoD" in span.name or "DtoH" in span.name:
            if launch:
                yield launch
            launch = []
        else:
            launch.append(span)
    if launch:
        yield launch


def summary(launches: Iterator[list[Span]], count: int) -> dict[str, Any]:
    """Means over launches."""
    parts: dict[str, list[float]] = {}
    step = idle = 0.0
    for launch in launches:
        reached = launch[0].begin
        step += max(span.end for span in launch) - reached
        for span in launch:
            idle += max(0.0, span.begin - reached)
            parts.setdefault(span.name, []).append(max(0.0, span.end - max(span.begin, reached)))
            reached = max(reached, span.end)
    kernels = [
        {"name": name, "launches": len(times) / count, "us": sum(times) / count}
        for name, times in sorted(parts.items(), key=lambda item: -sum(item[1]))
    ]
    return {"step": step / count, "idle": idle / count, "kernels": kernels}


if __name__ == "__main__":
    main()
