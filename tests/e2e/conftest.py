"""One real `flare` process that most end-to-end tests talk to, and the means to start others."""

import math
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import httpx
import openai
import pytest
from safetensors import safe_open
from tokenizers import Tokenizer

from scripts.server import Server, binary, free_port, start_flare
from tests.e2e.conversations import selected
from tests.e2e.replay import Answers, replay_together


class StartServer(Protocol):
    """Starts a server of the shared core that ends with the test."""

    def __call__(self, *arguments: str, core: Path | None = None) -> Server: ...


@pytest.fixture(scope="session")
def flare() -> Path:
    """The development build of the binary."""
    return binary("debug")


@pytest.fixture(scope="session")
def server(flare: Path, core: Path) -> Iterator[Server]:
    with start_flare(flare, core) as running:
        yield running
    assert running.process.returncode == 0


@pytest.fixture
def start_server(flare: Path, core: Path) -> Iterator[StartServer]:
    started: list[Server] = []
    shared_core = core

    def start(*arguments: str, core: Path | None = None) -> Server:
        started.append(start_flare(flare, core or shared_core, arguments=arguments))
        return started[-1]

    yield start
    for running in started:
        running.stop()


class Refused(Protocol):
    """Starts `flare run` on a path, expects it to refuse with an exit code of its own, returns what it said."""

    def __call__(self, path: Path, *arguments: str, port: int | None = None) -> str: ...


@pytest.fixture
def refused(flare: Path) -> Refused:
    def run(path: Path, *arguments: str, port: int | None = None) -> str:
        command = [flare, "run", path, "--port", str(port or free_port()), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        said = done.stdout + done.stderr
        assert done.returncode > 0, f"exit code {done.returncode}: {said}"
        assert "panicked" not in said
        assert said.strip()
        return said

    return run


@pytest.fixture
def smallest_mib(refused: Refused, core: Path) -> int:
    """The least `--memory` that a server of the shared core starts with, in MiB."""
    said = refused(core, "--memory", "1MiB")
    value, unit = re.search(r"takes ([\d.]+) (KiB|MiB|GiB)", said).groups()
    return math.ceil((float(value) + 0.1) * {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}[unit])


@pytest.fixture(scope="session")
def uncached(flare: Path, core: Path) -> Iterator[Server]:
    """A server that computes everything anew: what the others must answer, too."""
    with start_flare(flare, core, arguments=["--no-prefix-cache"]) as running:
        yield running


@pytest.fixture(scope="session")
def truth(uncached: Server) -> Answers:
    """The answers of the recorded conversations."""
    return replay_together(uncached, selected())


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=60) as made:
        yield made


@pytest.fixture(scope="session")
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as made:
        yield made


@pytest.fixture(scope="session")
def model(client: openai.OpenAI) -> str:
    return client.models.list().data[0].id


@pytest.fixture(scope="session")
def tokenizer(core: Path) -> Tokenizer:
    """The tokenizer that the core itself carries."""
    with safe_open(core / "rank-0.safetensors", "numpy") as file:
        return Tokenizer.from_str(file.get_tensor("frontend.tokenizer").tobytes().decode())


class WaitUntilIdle(Protocol):
    """Waits until a server holds nothing and returns its engine's numbers; fails with them otherwise."""

    def __call__(self, server: Server, *, timeout_s: float = 30.0) -> dict[str, Any]: ...


@pytest.fixture(scope="session")
def wait_until_idle() -> WaitUntilIdle:
    def wait(server: Server, *, timeout_s: float = 30.0) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while True:
            engine: dict[str, Any] = server.health()["engine"]
            held = engine["requests_running"] + engine["requests_waiting"]
            if held == 0 and is_unheld(engine, "slots") and is_unheld(engine, "pages"):
                return engine
            assert time.monotonic() < deadline, f"the server is not idle: {engine}"
            time.sleep(0.02)

    return wait


def is_unheld(engine: dict[str, Any], resource: str) -> bool:
    """Whether no request holds any: what is not free is held by the prefix cache, which gives it away when asked."""
    cached: int = engine.get(f"{resource}_cached", 0)
    free: int = engine[f"{resource}_free"]
    return free + cached == engine[f"{resource}_max"]
