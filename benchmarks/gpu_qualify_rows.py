"""The rows of a GPU's qualification, from what its steps have found; each step merges its own into one JSON file.

`raw` is the captured graph replayed back to back by torch, `helios` the same step through the server.
"""

import argparse
import json
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.common import installed_versions, machine

HISTORY_TOKENS = 512
"""Tokens that a timed decode step attends over at first."""
STEPS_BEFORE = 48
"""Decode steps before those that are timed: until the last prompt is read, fewer requests decode together."""
DECODE_STEPS = 128
"""Steps that a time is taken over."""
COPY_BYTES = 4 << 30
KERNELS_SHOWN = 8
"""Of a program, by their part of its time."""


def main() -> None:
    """Prints a model's rows, and keeps them beside what they were measured on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("json", type=Path)
    arguments = parser.parse_args()
    lines = [*rows(arguments.name.upper(), read(arguments.json))]
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    merge(
        arguments.json,
        {
            "machine": {**machine(), "gpu": gpu, "driver": driver},
            "versions": {**installed_versions(), "triton": version("triton")},
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "rows": lines,
        },
    )
    print("\n".join(lines), flush=True)


def rows(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    """One line a finding; what a step did not come to is left out."""
    for program, count in found.get("bit_exact", {}).items():
        yield f"bit-exact {program} ({name}): {count} launches equal"
    yield from decode_rows(name, found)
    if "start" in found:
        start = found["start"]
        yield f"start {name}: {start['ready_s']:.2f} s for {found.get('core_bytes', 0) / 1e9:.2f} GB; {start['said']}"
    yield from preparation_rows(name, found)
    yield from program_rows(name, found)
    for key in ("served", "sanitizer"):
        if key in found:
            yield f"{key} {name}: {found[key]}"


def decode_rows(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    """Decode steps beside the same graphs alone, beside the memory's speed, and beside peers."""
    raw, helios = found.get("raw_step_ms", {}), found.get("helios_step_ms", {})
    for lanes in raw:
        if lanes in helios:
            share = raw[lanes] / helios[lanes]
            yield f"replay overhead B={lanes} ({name}): {share:.3f} ({raw[lanes]:.3f} / {helios[lanes]:.3f} ms)"
    for lanes, times in found.get("submission_gaps_us", {}).items():
        gap, step_us = times["gap"], times["gap"]["median"] + times["run"]["median"]
        spread = f"median {gap['median']:.1f} us, p99 {gap['p99']:.1f} us"
        yield f"submission gap B={lanes} ({name}): {spread}, of {step_us:.0f} us a step"
    if "constrained_step_ms" in found:
        constrained, free = found["constrained_step_ms"], helios["1"]
        yield f"constrained decode B=1 ({name}): {constrained / free:.3f} of a free step ({constrained:.3f} ms)"
    if "weight_bytes" not in found:
        return
    copy = found["copy_bytes_per_s"]
    steps = {"raw": raw.get("1"), "helios": helios.get("1"), **found.get("transformers_step_ms", {})}
    for way, step_ms in steps.items():
        if step_ms:
            rate = found["weight_bytes"] / step_ms * 1e3
            speeds = f"{rate / 1e12:.2f} of {copy / 1e12:.2f} TB/s, {step_ms:.3f} ms"
            yield f"bandwidth {name} B=1 {way}: {rate / copy:.3f} ({speeds})"


def preparation_rows(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    """What preparing took, with empty caches and with full ones."""
    for caches in ("cold", "warm"):
        if report := found.get(f"{caches}_preparation"):
            phases, peak = report["phases_s"], max(report["peak_resident_bytes"].values()) / 1e9
            yield f"{caches} preparation {name}: {sum(phases.values()):.0f} s, {peak:.1f} GB of host memory; {phases}"


def program_rows(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    """Where programs' time goes, and how fast prompts are read."""
    for program, trace in found.get("timeline_us", {}).items():
        parts = [f"{one['us']:.0f} {one['name']} x{one['launches']:.0f}" for one in trace["kernels"][:KERNELS_SHOWN]]
        yield f"timeline {program} {name}: {trace['step']:.0f} us, idle {trace['idle']:.1f}; {', '.join(parts)}"
    if prompt := found.get("prompt"):
        rate = prompt["tokens"] / prompt["first_token_ms"] * 1e3
        after = f"{prompt['tokens']} tokens: {prompt['first_token_ms']:.1f} ms, {rate:.0f} tokens/s"
        yield f"first token {name} after {after}"
    for program, cost_ms in found.get("program_ms", {}).items():
        if program.startswith("prefill"):
            tokens = int(program.partition(".")[2])
            yield f"{program} {name}: {cost_ms:.2f} ms, {tokens / cost_ms * 1e3:.0f} tokens/s"


def read(path: Path) -> dict[str, Any]:
    """What was found so far."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def merge(path: Path, found: Mapping[str, Any]) -> None:
    """Keep a step's findings beside the others'."""
    path.write_text(json.dumps({**read(path), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
