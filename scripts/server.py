"""Starts and ends one server process; the demo, the tests and the benchmarks share it.

A server is always ended by its own process id, and its exit code is kept.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from scripts.smollm2 import ROOT

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
_POLL_S = 0.005


class ServerFailed(RuntimeError):
    """The server ended before it was ready, or did not become ready in time."""


class Server:
    """One process that serves HTTP on a port of 127.0.0.1, ready when constructed.

    As a context manager it is asked to stop at the end and killed only if it does not.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        port: int,
        log: IO[str] | None = None,
        environment: Mapping[str, str] | None = None,
        start_timeout_s: float = _START_TIMEOUT_S,
    ) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.started_at = time.perf_counter()
        # In a group of its own, so that Ctrl-C reaches it once, through `stop`: a second signal ends `flare` undrained.
        self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, process_group=0)
        try:
            self._wait_until_ready(start_timeout_s)
        except BaseException:
            self.stop()
            raise
        self.ready_s = time.perf_counter() - self.started_at

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def health(self) -> dict[str, Any]:
        """The body of GET /health; other engines may send an empty one."""
        with urllib.request.urlopen(f"{self.url}/health", timeout=5) as response:
            body: dict[str, Any] = json.loads(response.read() or b"{}")
        return body

    def stop(self) -> int:
        """Asks the server to stop (SIGTERM) and returns its exit code; kills it after half a minute."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def _wait_until_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            code = self.process.poll()
            if code is not None:
                raise ServerFailed(f"the server ended with exit code {code} before it was ready")
            with contextlib.suppress(urllib.error.URLError, OSError):
                self.health()
                return
            time.sleep(_POLL_S)
        raise ServerFailed(f"the server was not ready within {timeout_s:.0f} s")


def start_flare(
    binary: Path,
    core: Path,
    *,
    arguments: Sequence[str] = (),
    port: int | None = None,
    log: IO[str] | None = None,
) -> Server:
    """`flare run CORE`, on a free port unless one is given."""
    port = free_port() if port is None else port
    return Server([binary, "run", core, "--port", str(port), *arguments], port=port, log=log)


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def binary(profile: str) -> Path:
    """The `flare` binary of a Cargo profile, `debug` or `release`."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = target / profile / "flare"
    if not path.is_file():
        command = "cargo build --workspace" + (" --release" if profile == "release" else "")
        raise FileNotFoundError(f"there is no {profile} build of flare; run `{command}`")
    return path
