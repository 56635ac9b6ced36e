"""Serves a core on the GPU: its start, decode steps through the server, streams, cancels, and memory that stays put.

A second start logs the device's timeline, which says what decode steps wait for each other.
"""

import argparse
import http.client
import json
import os
import random
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from benchmarks.common import median, p99
from benchmarks.gpu_qualify_rows import DECODE_STEPS, HISTORY_TOKENS, STEPS_BEFORE, merge
from scripts.server import Server, ServerFailed, free_port

ROUNDS = 5
PROMPT_TOKENS = 4096
CONSTRAINT = {"guided_regex": "[a-z ]{4000}"}
READY_MAX_S = 60.0
TIMELINE = {"FLARE_LOG": "info,helios::device=trace"}
PORT = free_port()


def main() -> None:
    """Measures and merges what was found into the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("core", type=Path)
    parser.add_argument("--flare", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--lanes", type=int, nargs="*", default=[1, 2, 4, 8])
    arguments = parser.parse_args()
    command = [str(arguments.flare), "run", str(arguments.core), "--port", str(PORT)]
    with serving(command) as (server, log):
        merge(arguments.json, {"start": {"ready_s": server.ready_s, "said": said(log)}})
        complete(1, 8, seed=0)
        before = device_memory_mib()
        steps = {str(lanes): helios_step_ms(lanes) for lanes in arguments.lanes}
        constrained = helios_step_ms(1, CONSTRAINT)
        prompt_s = median([complete(1, 1, seed=number, prompt_tokens=PROMPT_TOKENS) for number in range(ROUNDS)])
        served = streams(4)
        after = device_memory_mib()
        code = server.stop()
    text = f"{served}; device memory {before} MiB before and {after} MiB after; exit code {code}"
    merge(arguments.json, {"helios_step_ms": steps, "constrained_step_ms": constrained, "served": text})
    merge(arguments.json, {"prompt": {"tokens": PROMPT_TOKENS, "first_token_ms": prompt_s * 1e3}})
    launches = timeline(command, arguments.lanes)
    merge(arguments.json, {"submission_gaps_us": {str(lanes): gaps_us(launches, lanes) for lanes in arguments.lanes}})


@contextmanager
def serving(
    command: list[str], *, ready_max_s: float = READY_MAX_S, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[Server, IO[str]]]:
    """A server and what it says, until the block ends."""
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        variables = {**os.environ, **(environment or {})}
        try:
            server = Server(command, port=PORT, log=log, environment=variables, start_timeout_s=ready_max_s)
        except ServerFailed as error:
            raise RuntimeError(f"{error}: {said(log)}") from error
        with server:
            yield server, log


def said(log: IO[str]) -> str:
    """A log so far, in one line and without colours."""
    log.seek(0)
    return re.sub(r"\x1b\[\d+m", "", log.read()).strip().replace("\n", " | ")[-2000:]


def timeline(command: list[str], lanes: Sequence[int]) -> list[dict[str, Any]]:
    """The launches that a server logs while it completes prompts, so many at a time, in their order."""
    with serving([*command, "--log-format", "json"], environment=TIMELINE) as (server, log):
        for count in lanes:
            complete(count, STEPS_BEFORE + DECODE_STEPS, seed=count)
        server.stop()
        log.seek(0)
        # What the server prints of its memory is no part of the log.
        fields = [json.loads(line)["fields"] for line in log if line.startswith("{")]
    return [launch for launch in fields if "run_us" in launch]


def gaps_us(launches: Sequence[Mapping[str, Any]], lanes: int) -> dict[str, Any]:
    """What decode steps of so many lanes took, and what the device waited before each that followed another."""
    name = f"decode.{lanes}"
    pairs = zip(launches, launches[1:], strict=False)
    steps = [launch for before, launch in pairs if before["program"] == launch["program"] == name]
    if not steps:
        raise RuntimeError(f"the log has no two launches of {name} in a row")
    return {"steps": len(steps), **{key: spread([step[f"{key}_us"] for step in steps]) for key in ("gap", "run")}}


def spread(values: Sequence[float]) -> dict[str, float]:
    """The middle and the upper end of many values."""
    return {"median": median(values), "p99": p99(values)}


def request(method: str, path: str, body: dict[str, Any] | None = None) -> http.client.HTTPResponse:
    """One exchange; the answer's body is still to be read."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
    return connection.getresponse()


def complete(
    lanes: int, tokens: int, *, seed: int, prompt_tokens: int = HISTORY_TOKENS, more: Mapping[str, str] | None = None
) -> float:
    """Seconds of completions at the same time, each of so many tokens after a prompt of its own."""
    draw = random.Random(seed)

    def one(prompt: list[int]) -> None:
        fields = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "cache_prompt": False}
        response = request("POST", "/v1/completions", {**fields, **(more or {})})
        usage = json.loads(response.read())["usage"]
        if usage["completion_tokens"] != tokens:
            raise RuntimeError(f"{usage} instead of {tokens} tokens")

    prompts = [[draw.randrange(1000, 40000) for _ in range(prompt_tokens)] for _ in range(lanes)]
    started = time.perf_counter()
    with ThreadPoolExecutor(lanes) as pool:
        list(pool.map(one, prompts))
    return time.perf_counter() - started


def helios_step_ms(lanes: int, more: Mapping[str, str] | None = None) -> float:
    """Milliseconds of a decode step: what answers take that are so many steps longer, each sent whole."""
    differences = []
    for number in range(ROUNDS):
        short, long = (complete(lanes, STEPS_BEFORE + steps, seed=number, more=more) for steps in (0, DECODE_STEPS))
        differences.append((long - short) / DECODE_STEPS * 1e3)
    return median(differences)


def streams(count: int) -> str:
    """Chats streamed at the same time, of which the first is left early."""

    def one(number: int) -> int:
        messages = [{"role": "user", "content": f"Say something about the number {number}."}]
        fields = {"messages": messages, "max_tokens": 64, "stream": True, "ignore_eos": True}
        response = request("POST", "/v1/chat/completions", fields)
        events = 0
        for line in response:
            events += line.startswith(b"data: ")
            if number == 0 and events == 8:
                response.close()
                break
        return events

    with ThreadPoolExecutor(count) as pool:
        events = list(pool.map(one, range(count)))
    return f"{count} streams at a time with {events} events, the first left early"


def device_memory_mib() -> int:
    """Device memory in use, by all processes."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    query = ["nvidia-smi", f"--id={gpu}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])


if __name__ == "__main__":
    main()
