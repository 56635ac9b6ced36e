"""Prepares a model for the GPU, and times the captured decode programs back to back.

The preparation's session still holds the graphs, so raw replay is timed on the very programs that were exported. Run a
second time, it finds the caches that the first run filled.
"""

import argparse
import gc
import json
from pathlib import Path

import numpy as np
import torch

from benchmarks.gpu_qualify_rows import COPY_BYTES, DECODE_STEPS, HISTORY_TOKENS, STEPS_BEFORE, merge
from ignition.bootstrap import choose_device, prepare
from ignition.devices.cuda.bench import elapsed_ms
from ignition.export.verify import EXPECTED_NAME
from ignition.export.writer import REPORT_NAME
from ignition.preparation.driver import Driver
from ignition.preparation.model import PreparationOptions
from ignition.preparation.session import RecordedPreparationSession
from ignition.progress import Display

CONTEXT_TOKENS = 8192
TOKENS_MAX = HISTORY_TOKENS + STEPS_BEFORE + DECODE_STEPS + 16
"""Of a request whose steps are timed."""


def main() -> None:
    """Prepares, measures, and merges what was found into the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("core", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--caches", choices=("cold", "warm"), required=True)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--prefill", type=int, default=4096)
    arguments = parser.parse_args()
    options = PreparationOptions(arguments.requests, CONTEXT_TOKENS, arguments.prefill)
    session = prepare(arguments.model, arguments.core, device=choose_device("cuda"), options=options, display=Display())
    report = json.loads((arguments.core / REPORT_NAME).read_text())
    merge(
        arguments.json,
        {
            f"{arguments.caches}_preparation": report,
            "core_bytes": sum(path.stat().st_size for path in arguments.core.iterdir()),
            "weight_bytes": weight_bytes(session),
            "bit_exact": launches(arguments.core),
            "program_ms": {program.plan.name: program.cost_ms for program in session.programs},
            "copy_bytes_per_s": copy_bytes_per_s(),
            "raw_step_ms": {str(lanes): raw_step_ms(session, lanes) for lanes in decode_lanes(session)},
        },
    )


def launches(core: Path) -> dict[str, int]:
    """Launches of each program whose every output a fresh process computed again from the file, bit by bit.

    The export fails where one bit differs, so each recorded launch is one that was equal.
    """
    counts: dict[str, int] = {}
    for step in json.loads((core / EXPECTED_NAME).read_text())["steps"]:
        counts[step["program"]] = counts.get(step["program"], 0) + 1
    return counts


def weight_bytes(session: RecordedPreparationSession) -> int:
    """What one token has to read: every placed tensor, but for an embedding table that is no output head, too."""
    tensors = session.storage.weights.tensors
    head = session.model.vocabulary.weight.data_ptr()
    table = next(tensor for name, tensor in tensors.items() if name.endswith("embed_tokens.weight"))
    placed = sum(tensor.nbytes for tensor in tensors.values())
    return placed if table.data_ptr() == head else placed - table.nbytes


def decode_lanes(session: RecordedPreparationSession) -> list[int]:
    """Decode capacities for whose histories preparation backs pages."""
    limits = session.driver_limits()
    pages_each = -(-TOKENS_MAX // limits.page_tokens)
    return [lanes for lanes in limits.decode_capacities if lanes <= limits.slots and lanes * pages_each <= limits.pages]


def raw_step_ms(session: RecordedPreparationSession, lanes: int) -> float:
    """Milliseconds of a decode step, replayed back to back from a history, with nothing between."""
    session.clear_state()
    driver = Driver(session.captured_machine(), session.driver_limits())
    generator = np.random.default_rng(3)
    requests = []
    for slot in range(lanes):
        prompt = generator.integers(0, session.state.vocabulary, HISTORY_TOKENS)
        request = driver.admit(slot, prompt, seed=slot)
        while request.consumed < HISTORY_TOKENS:
            chunk = min(HISTORY_TOKENS - request.consumed, driver.limits.prefill_capacities[-1])
            driver.prefill(request, chunk, sample=request.consumed + chunk == HISTORY_TOKENS)
        driver.grow(request, TOKENS_MAX)
        requests.append(request)
    driver.decode(list(requests), capacity=lanes)
    program = next(one for one in session.programs if one.plan.name == f"decode.{lanes}")

    def steps(count: int) -> None:
        for _ in range(count):
            program.recording.launch()

    gc.collect()
    steps(STEPS_BEFORE)
    return session.device.elapsed_ms(lambda: steps(DECODE_STEPS)) / DECODE_STEPS


def copy_bytes_per_s() -> float:
    """Bytes read and written a second by the device's own copy."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(6):
        times.append(elapsed_ms(lambda: target.copy_(source)))
    return 2 * COPY_BYTES / min(times) * 1e3


if __name__ == "__main__":
    main()
