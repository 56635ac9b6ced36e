"""What every benchmark shares: the machine and its versions, one table for people, one JSON file for later.

A row's ratio is above 1 where Flare is better, whichever way its unit points.
"""

import argparse
import dataclasses
import json
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("torch", "transformers", "numpy")


@dataclasses.dataclass(frozen=True)
class Row:
    """One measurement beside a peer's; `peer` is empty where there is none."""

    name: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | None = None
    more_is_better: bool = True

    @property
    def ratio(self) -> float | None:
        """Above 1: Flare is better."""
        if not self.peer_value or not self.value:
            return None
        ratio = self.value / self.peer_value
        return ratio if self.more_is_better else 1 / ratio

    def beside(self, peer: str, value: float) -> "Row":
        """The same measurement with a peer's."""
        return dataclasses.replace(self, peer=peer, peer_value=value)

    def as_json(self) -> dict[str, str | float | None]:
        """The row as results keep it."""
        fields = ("name", "value", "unit", "peer", "peer_value", "ratio")
        return {field: getattr(self, field) for field in fields}


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser that knows `--json PATH`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the rows as JSON")
    return parser


def report(rows: Sequence[Row], *, json_path: Path | None, versions: Mapping[str, str] | None = None) -> None:
    """Prints the table and writes the JSON file if one is asked for."""
    on = machine()
    with_versions = {**installed_versions(), **(versions or {})}
    print("\n" + table(rows) + "\n")
    for facts in (on, with_versions):
        print(", ".join(f"{key} {value}" for key, value in facts.items()))
    if json_path is not None:
        document = {
            "machine": on,
            "versions": with_versions,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "rows": [row.as_json() for row in rows],
        }
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(document, indent=1) + "\n")


def table(rows: Sequence[Row]) -> str:
    """The rows in aligned columns."""
    cells = [("", "flare", "unit", "peer", "its value", "ratio (>1: flare is better)")]
    for row in rows:
        peer_value = "" if row.peer_value is None else _short(row.peer_value)
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        cells.append((row.name, _short(row.value), row.unit, row.peer, peer_value, ratio))
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i in (1, 4, 5) else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


def median(values: Sequence[float]) -> float:
    """The median; of an even count, the mean of the two middle ones."""
    return statistics.median(values)


def p99(values: Sequence[float]) -> float:
    """The smallest of the values that 99 of 100 do not exceed; of fewer than a hundred, the largest."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def machine() -> dict[str, str]:
    """The processor, its cores that this process may use, its vector extensions and the memory."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpuinfo = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = cpuinfo.get("flags", "").split()
    notable = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "cpu": cpuinfo.get("model name", platform.processor()),
        "cores": str(len(os.sched_getaffinity(0))),
        "isa": " ".join(notable),
        "memory": f"{memory_kib / (1 << 20):.0f} GiB",
        "system": platform.platform(terse=True),
    }


def installed_versions() -> dict[str, str]:
    """Flare's commit, Python's version and those of the packages that take part."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    packed = ROOT / "commit"  # What was packed for another machine says so itself.
    if packed.is_file():
        commit = packed.read_text().strip()
    else:
        commit = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    versions = {"flare": commit or metadata.version("flare-ignition"), "python": platform.python_version()}
    return versions | {package: metadata.version(package) for package in _PACKAGES}


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
