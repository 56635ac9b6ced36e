"""Flare beside Transformers eager and llama.cpp on this CPU, with the same BF16 weights, in one run.

The engines take turns, one at a time, and each number is the median over the rounds. Both servers are
measured through HTTP. docs/benchmarks.md says how to build llama.cpp and how each number is taken.
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.common import Row, argument_parser, median, report
from benchmarks.llama import llama_command, llama_version, start_llama
from benchmarks.workload import CONCURRENCIES, PREFILL_TOKENS, decode_rate, first_token_s, prefill_rate
from scripts.server import Server, binary, start_flare
from scripts.smollm2 import ROOT, ensure_core

_LLAMA_CONTEXT_TOKENS = 8192
_UNITS = {"decode": "tokens/s", "prefill": "tokens/s", "start": "s", "rss": "MiB", "pss": "MiB"}

Start = Callable[[], Server]


def main() -> None:
    """Measures every engine in turn and reports."""
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--llama-bin", type=Path, metavar="DIR", help="folder of llama-server and llama-quantize")
    parser.add_argument("--without-transformers", action="store_true")
    arguments = parser.parse_args()

    log_path = ROOT / "build" / "benchmarks" / "servers.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    core = ensure_core(ROOT / "build" / "demo-core")
    engines: dict[str, Start] = {}
    versions = {}
    with log_path.open("w") as log:
        engines["flare"] = lambda: start_flare(binary("release"), core, log=log)
        if arguments.llama_bin is None:
            print("no --llama-bin: llama.cpp is left out")
        else:
            context = ["-c", str(_LLAMA_CONTEXT_TOKENS), "--kv-unified"]
            command = llama_command(arguments.llama_bin, lanes=max(CONCURRENCIES), context=context)
            versions["llama.cpp"] = llama_version(arguments.llama_bin)
            engines["llama.cpp bf16"] = lambda: start_llama(command, log)
        samples = _measure(engines, arguments.rounds, with_transformers=not arguments.without_transformers)
    report(_rows(samples), json_path=arguments.json, versions=versions)


def _measure(engines: dict[str, Start], rounds: int, *, with_transformers: bool) -> dict[str, dict[str, list[float]]]:
    """Samples by engine and measurement. A round that goes before the counted ones warms the file cache."""
    samples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for start in engines.values():
        with start() as server:
            first_token_s(server)
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        for name, start in engines.items():
            for measurement, value in _served(start, seed=number):
                samples[name][measurement].append(value)
        if with_transformers:
            for measurement, value in _eager().items():
                samples["transformers eager"][measurement].append(value)
    return samples


def _served(start: Start, *, seed: int) -> Iterator[tuple[str, float]]:
    with start() as server:
        yield "start to ready", server.ready_s
        yield "start to first token", first_token_s(server)
        yield from _memory(server, "after load")
        for lanes in CONCURRENCIES:
            yield f"decode bf16 c={lanes}", decode_rate(server, lanes, seed=1000 * seed + lanes)
        for tokens in PREFILL_TOKENS:
            yield f"prefill {tokens} bf16", prefill_rate(server, tokens, seed=1000 * seed + tokens)
        yield from _memory(server, "after run")


def _eager() -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.eager"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rates: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return rates


def _memory(server: Server, when: str) -> Iterator[tuple[str, float]]:
    """Resident and proportional memory in MiB."""
    lines = Path(f"/proc/{server.process.pid}/smaps_rollup").read_text().splitlines()
    sizes_kib = {line.partition(":")[0]: int(line.split()[1]) for line in lines[1:]}
    yield f"rss {when}", sizes_kib["Rss"] / 1024
    yield f"pss {when}", sizes_kib["Pss"] / 1024


def _rows(samples: dict[str, dict[str, list[float]]]) -> list[Row]:
    """One row a measurement and peer, Flare's own rows first in order."""
    rows = []
    peers = [name for name in samples if name != "flare"]
    for measurement, values in samples["flare"].items():
        kind = measurement.split()[0]
        row = Row(measurement, median(values), _UNITS[kind], more_is_better=kind in ("decode", "prefill"))
        beside = [peer for peer in peers if measurement in samples[peer]]
        rows += [row.beside(peer, median(samples[peer][measurement])) for peer in beside] or [row]
    return rows


if __name__ == "__main__":
    main()
