"""The rows of a GPU's qualification, from what its steps have found; each step merges its own into one JSON file.

`raw` is the captured graph replayed back to back by torch, `helios` the same step through the server.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HISTORY_TOKENS = 512
"""Tokens that a timed decode step attends over at first."""
DECODE_STEPS = 128
"""Steps that a time is taken over."""
COPY_BYTES = 4 << 30


def main() -> None:
    """Prints a model's rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("json", type=Path)
    arguments = parser.parse_args()
    found = read(arguments.json)
    lines = [*rows(arguments.name.upper(), found)]
    merge(arguments.json, {"rows": lines})
    print("\n".join(lines), flush=True)


def rows(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    """One line a finding; what a step did not come to is left out."""
    for program, count in found.get("bit_exact", {}).items():
        yield f"bit-exact {program} ({name}): {count} launches equal"
    raw, helios = found.get("raw_step_ms", {}), found.get("helios_step_ms", {})
    for lanes in raw:
        if lanes in helios:
            share = raw[lanes] / helios[lanes]
            yield f"replay overhead B={lanes} ({name}): {share:.3f} ({raw[lanes]:.3f} / {helios[lanes]:.3f} ms)"
    if "weight_bytes" in found:
        copy = found["copy_bytes_per_s"]
        steps = {"raw": raw.get("1"), "helios": helios.get("1"), **found.get("transformers_step_ms", {})}
        for way, step_ms in steps.items():
            if step_ms:
                rate = found["weight_bytes"] / step_ms * 1e3
                speeds = f"{rate / 1e12:.2f} of {copy / 1e12:.2f} TB/s, {step_ms:.3f} ms"
                yield f"bandwidth {name} B=1 {way}: {rate / copy:.3f} ({speeds})"
    if "start" in found:
        start = found["start"]
        yield f"start {name}: {start['ready_s']:.2f} s for {found.get('core_bytes', 0) / 1e9:.2f} GB; {start['said']}"
    if "preparation" in found:
        phases = found["preparation"]["phases_s"]
        peak = max(found["preparation"]["peak_resident_bytes"].values()) / 1e9
        yield f"preparation {name}: {sum(phases.values()):.0f} s, peak {peak:.1f} GB of host memory; {phases}"
    for key in ("served", "sanitizer"):
        if key in found:
            yield f"{key} {name}: {found[key]}"


def read(path: Path) -> dict[str, Any]:
    """What was found so far."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def merge(path: Path, found: Mapping[str, Any]) -> None:
    """Keep a step's findings beside the others'."""
    path.write_text(json.dumps({**read(path), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
