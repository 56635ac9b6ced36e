"""What a thousand streaming clients that stop reading do to those that read on: their pauses between tokens.

Every round starts a server and measures the same tokens of the same streams three times: alone, while the clients'
requests wait, and once all of them have been generated to nobody. docs/benchmarks.md says how each number is taken.
"""

import resource
import selectors
import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import Row, argument_parser, median, p99, report
from benchmarks.workload import COMPLETIONS, DECODE_PROMPT_TOKENS, first_token_s, prompts
from scripts.server import Server, binary, start_flare
from scripts.slow_reader import ask, read_to_end
from scripts.smollm2 import ROOT, ensure_core

_CLIENTS = 1000
_READERS = 4
# The same tokens of every stream are measured, so that all attend to as many before them. The clients must all be
# waiting when the first of them comes.
_MEASURED_TOKENS = range(500, 800)
# A long text that the stream begins with fills the connection's buffers; its prompt is computed once.
_ECHOED_TOKENS = 6000
_UNREAD_TOKENS = 2
_SETTLE_TIMEOUT_S = 120
# Longer than a server waits for a client to take its bytes.
_CUT_OFF_TIMEOUT_S = 150
_POLL_S = 0.05
_DESCRIPTORS = 4 * _CLIENTS


def main() -> None:
    """Measures every round and reports."""
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=_CLIENTS, metavar="N", help="clients that stop reading")
    parser.add_argument("--core", type=Path, help="a prepared core; default: the demo's")
    arguments = parser.parse_args()

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_DESCRIPTORS, most), most))
    core = arguments.core or ensure_core(ROOT / "build" / "demo-core")
    samples: dict[str, list[float]] = defaultdict(list)
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", flush=True)
        with start_flare(binary("release"), core) as server:
            first_token_s(server)
            is_last = number == arguments.rounds - 1
            for name, value in _round(server, clients=arguments.clients, seed=number, see_cut_off=is_last):
                samples[name].append(value)
                print(f"  {name}: {value:.4g}", flush=True)
    report(_rows(samples), json_path=arguments.json)


def _round(server: Server, *, clients: int, seed: int, see_cut_off: bool) -> Iterator[tuple[str, float]]:
    yield from _pauses("alone", _Streams(server, seed=seed).measure())
    yield "rss alone", _resident_mib(server)
    descriptors = _descriptors(server)
    _ask_unread(server, seed=seed).close()
    _wait_until(server, waiting=0, running=0)
    streams = _Streams(server, seed=seed)
    started = time.perf_counter()
    unread = [_ask_unread(server, seed=seed) for _ in range(clients)]
    _wait_until(server, waiting=clients, running=_READERS)
    yield "time to open", time.perf_counter() - started
    yield from _pauses("waiting", streams.measure())
    _wait_until(server, waiting=0, running=0)
    streams = _Streams(server, seed=seed)
    yield from _pauses("stalled", streams.measure())
    yield "rss stalled", _resident_mib(server)
    yield "clients stalled", _descriptors(server) - descriptors
    if not see_cut_off:
        return
    _wait_until_let_go(server, descriptors)
    finished = sum(b"[DONE]" in read_to_end(client) for client in unread)
    yield "clients cut off", clients - finished
    yield "rss after", _resident_mib(server)


def _ask_unread(server: Server, *, seed: int) -> socket.socket:
    (prompt,) = prompts(1, _ECHOED_TOKENS, seed=seed)
    request = {"prompt": prompt, "echo": True, "stream": True, "max_tokens": _UNREAD_TOKENS, "ignore_eos": True}
    return ask(server.port, COMPLETIONS, request)


class _Streams:
    """As many streams as the server has slots, read by one thread as they come."""

    def __init__(self, server: Server, *, seed: int) -> None:
        self._moments: dict[socket.socket, list[float]] = {}
        for prompt in prompts(_READERS, DECODE_PROMPT_TOKENS, seed=1000 + seed):
            request = {"prompt": prompt, "stream": True, "max_tokens": _MEASURED_TOKENS.stop + 100, "ignore_eos": True}
            self._moments[ask(server.port, COMPLETIONS, request)] = []
        self._read_until(1)

    def measure(self) -> list[float]:
        """The pauses before the measured tokens, in ms; closes the streams, which cancels them."""
        if any(len(moments) >= _MEASURED_TOKENS.start for moments in self._moments.values()):
            raise ValueError("the clients took too long to open: tokens that are to be measured have come before")
        self._read_until(_MEASURED_TOKENS.stop)
        pauses = []
        for client, moments in self._moments.items():
            client.close()
            pauses += [1000 * (moments[i] - moments[i - 1]) for i in _MEASURED_TOKENS]
        return pauses

    def _read_until(self, tokens: int) -> None:
        """Reads until every stream has so many tokens."""
        with selectors.DefaultSelector() as selector:
            for client, moments in self._moments.items():
                if len(moments) < tokens:
                    selector.register(client, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    ready = key.fileobj
                    assert isinstance(ready, socket.socket)
                    chunk = ready.recv(1 << 16)
                    if not chunk:
                        raise ValueError("the server closed a stream that is read")
                    now = time.perf_counter()
                    moments = self._moments[ready]
                    moments += [now] * chunk.count(b"data: ")
                    if len(moments) >= tokens:
                        selector.unregister(ready)


def _pauses(state: str, pauses_ms: list[float]) -> Iterator[tuple[str, float]]:
    yield f"pause p99 {state}", p99(pauses_ms)
    yield f"pause median {state}", median(pauses_ms)


def _wait_until(server: Server, *, waiting: int, running: int) -> None:
    deadline = time.monotonic() + _SETTLE_TIMEOUT_S
    while (engine := server.health()["engine"])["requests_waiting"] != waiting or engine["requests_running"] != running:
        if time.monotonic() > deadline:
            raise ValueError(f"not {waiting} requests wait and {running} run: {engine}")
        time.sleep(_POLL_S)


def _wait_until_let_go(server: Server, descriptors: int) -> None:
    """Waits until the server has no more than so many descriptors, and so no connection to an unread stream."""
    deadline = time.monotonic() + _CUT_OFF_TIMEOUT_S
    while (held := _descriptors(server)) > descriptors:
        if time.monotonic() > deadline:
            raise ValueError(f"the server still has {held} descriptors, {held - descriptors} more than before")
        time.sleep(_POLL_S)


def _descriptors(server: Server) -> int:
    return sum(1 for _ in Path(f"/proc/{server.process.pid}/fd").iterdir())


def _resident_mib(server: Server) -> float:
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def _rows(samples: dict[str, list[float]]) -> list[Row]:
    units = {"pause": "ms", "rss": "MiB", "time": "s", "clients": ""}
    rows = []
    for name, values in samples.items():
        row = Row(name, median(values), units[name.split()[0]], more_is_better=False)
        statistic, _, state = name.rpartition(" ")
        if statistic.startswith("pause") and state != "alone":
            row = row.beside("alone", median(samples[f"{statistic} alone"]))
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
