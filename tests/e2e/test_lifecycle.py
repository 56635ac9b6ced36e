"""The server as a process: it stops when told, holds no Python, and shares a core's pages with others."""

import json
import re
import signal
import time
from pathlib import Path

import httpx
import pytest

from scripts.server import Server

CHAT = "/v1/chat/completions"
STORY = [{"role": "user", "content": "Tell me a story about a lighthouse."}]


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT], ids=lambda sent: sent.name)
def test_a_signal_while_streaming_drains_and_exits_cleanly(start_server, sent: signal.Signals) -> None:
    server = start_server()
    request = {"messages": STORY, "max_tokens": 24, "stream": True, "top_k": 1}
    with httpx.stream("POST", f"{server.url}{CHAT}", json=request, timeout=60) as response:
        lines = (line for line in response.iter_lines() if line.startswith("data: "))
        next(lines)
        server.process.send_signal(sent)
        rest = list(lines)
    assert rest[-1] == "data: [DONE]"
    finishes = [
        choice["finish_reason"]
        for line in rest[:-1]
        for choice in json.loads(line[6:])["choices"]
        if choice["finish_reason"]
    ]
    assert len(finishes) == 1
    assert server.process.wait(10) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")


def test_an_idle_server_stops_at_once(start_server) -> None:
    server = start_server()
    started = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - started < 2


def test_a_long_answer_does_not_hold_up_the_end(start_server) -> None:
    server = start_server("--drain-timeout-ms", "300")
    request = {"messages": STORY, "max_tokens": 4000, "stream": True}
    with httpx.stream("POST", f"{server.url}{CHAT}", json=request, timeout=60) as response:
        lines = (line for line in response.iter_lines() if line.startswith("data: "))
        next(lines)
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        # The stream ends with an error that says so; it is never cut without a word.
        assert any("error" in json.loads(line[6:]) for line in lines if line != "data: [DONE]")
    assert server.process.wait(10) == 0
    assert time.monotonic() - started < 5


def test_no_python_in_the_serving_process(server: Server) -> None:
    answer = httpx.post(f"{server.url}{CHAT}", json={"messages": STORY, "max_tokens": 4}, timeout=60)
    assert answer.status_code == 200
    mapped = {line.split()[-1] for line in proc(server, "maps").splitlines() if "/" in line}
    assert mapped
    foreign = [path for path in mapped if re.search(r"python|torch|libc10|site-packages", Path(path).name)]
    assert not foreign


def test_two_servers_share_one_core(start_server, core: Path) -> None:
    servers = [start_server(), start_server()]
    request = {"messages": STORY, "max_tokens": 8, "top_k": 1}
    answers = [httpx.post(f"{server.url}{CHAT}", json=request, timeout=60).json() for server in servers]
    assert answers[0]["choices"] == answers[1]["choices"]
    file_bytes = (core / "rank-0.safetensors").stat().st_size
    for server in servers:
        sizes = core_mapping_kib(server)
        assert sizes["Rss"] * 1024 > file_bytes // 2
        assert sizes["Private_Clean"] + sizes["Private_Dirty"] < sizes["Rss"] // 20
        assert sizes["Pss"] <= sizes["Rss"] * 0.55


def core_mapping_kib(server: Server) -> dict[str, int]:
    """The sizes of the mappings of the core's file, summed, in KiB."""
    sums = dict.fromkeys(("Rss", "Pss", "Private_Clean", "Private_Dirty"), 0)
    in_core = False
    for line in proc(server, "smaps").splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            in_core = line.endswith("rank-0.safetensors")
        elif in_core and (name := line.partition(":")[0]) in sums:
            sums[name] += int(line.split()[1])
    return sums


def proc(server: Server, name: str) -> str:
    return Path(f"/proc/{server.process.pid}/{name}").read_text()
