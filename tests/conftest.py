"""Fixtures of every suite: the one real core that the whole test run shares."""

from pathlib import Path

import pytest

from scripts.smollm2 import ROOT, ensure_core


@pytest.fixture(scope="session")
def core() -> Path:
    """A core of SmolLM2-135M-Instruct, prepared once and kept while nothing that shapes it changes."""
    return ensure_core(ROOT / "build" / "test-core")
