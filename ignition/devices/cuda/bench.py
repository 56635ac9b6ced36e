"""Measuring on the device: races of candidates, and whole launches.

A gate holds the stream until a round of work is queued, so the host's pace is in no number.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import torch

TRIALS = 5
GATE_CYCLES = 4_000_000
"""About two milliseconds of waiting: longer than the host takes to queue a round."""


class CudaBench:
    """A `Bench`. Before each run the caches are filled with something else and the activations are produced."""

    def __init__(self) -> None:
        cache_bytes = torch.cuda.get_device_properties().L2_cache_size
        self._eviction = torch.empty(2 * cache_bytes, dtype=torch.uint8, device="cuda")

    def reserve(self, scratch_bytes: int) -> None:
        """Let torch hold the largest scratch."""
        torch.empty(max(1, scratch_bytes), dtype=torch.uint8, device="cuda")

    def prime(self, runs: Sequence[Callable[[], object]]) -> None:
        """Compile side by side. The stream still runs one after another."""
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            # What is set for gradients is a thread's own.
            for started in [pool.submit(torch.no_grad()(run)) for run in runs]:
                started.exception()  # It is raised again where it is measured.
        torch.cuda.synchronize()

    def measure_us(self, produce: Callable[[], object], run: Callable[[], object]) -> float:
        """The median of a few runs, after one that warms up."""
        produce()
        run()
        torch.cuda.synchronize()
        events = [(event(), event()) for _ in range(TRIALS)]
        torch.cuda._sleep(GATE_CYCLES)  # type: ignore[no-untyped-call]
        for start, end in events:
            self._eviction.zero_()
            produce()
            start.record()
            run()
            end.record()
        torch.cuda.synchronize()
        return 1e3 * median([float(start.elapsed_time(end)) for start, end in events])

    def release(self) -> None:
        """Give torch's unused memory back."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def elapsed_ms(launch: Callable[[], object]) -> float:
    """Milliseconds of a launch on the device."""
    start, end = event(), event()
    torch.cuda.synchronize()
    start.record()
    launch()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def event() -> torch.cuda.Event:
    """A point in a stream, with its time."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
