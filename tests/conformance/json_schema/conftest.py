"""A served SmolLM2 core."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.server import Server, binary, start_flare


@pytest.fixture(scope="session")
def server(core: Path) -> Iterator[Server]:
    with start_flare(binary("debug"), core) as running:
        yield running
    assert running.process.returncode == 0
