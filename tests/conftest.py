"""Fixtures of every suite: what the whole test run shares because it takes long to make."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.smollm2 import ROOT, ensure_core


@pytest.fixture(scope="session")
def core() -> Path:
    """A core of SmolLM2-135M-Instruct, prepared once and kept while nothing that shapes it changes."""
    return ensure_core(ROOT / "build" / "test-core")


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A session that has captured a tiny model, at addresses that no other suite uses."""
    from tests.preparation.tiny_session import capture_tiny

    session = capture_tiny(tmp_path_factory.mktemp("tiny"))
    yield session
