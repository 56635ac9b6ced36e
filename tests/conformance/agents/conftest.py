"""A server whose model plays its part in every agent's turn."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.server import Server, binary, start_flare
from tests.conformance.agents.witness import PLAY
from tests.conformance.scripted.checkpoint import prepare_scripted

CONTEXT_TOKENS = 1 << 17
"""The model reads a token a byte, and agents begin with some 50,000."""


@pytest.fixture(scope="session")
def agents_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_scripted(tmp_path_factory.mktemp("agents"), PLAY, context_tokens=CONTEXT_TOKENS)


@pytest.fixture
def server(agents_core: Path) -> Iterator[Server]:
    """One whose cache holds nothing yet."""
    with start_flare(binary("debug"), agents_core) as running:
        yield running
    assert running.process.returncode == 0


@pytest.fixture(autouse=True, scope="session")
def alone() -> None:
    """Agents report to their makers; they are not run where they could reach them."""
    interfaces = {name for _, name in socket.if_nameindex()}
    if interfaces != {"lo"}:
        pytest.skip("`make test-agents` runs this suite, with agents installed and no network but the loopback")
