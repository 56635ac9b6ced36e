"""One build of the host operators for a session."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from library import Kernels, has_tiles, march  # noqa: E402


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    """The library under test, with two threads."""
    if "-mamx-tile" in march() and not has_tiles():
        pytest.skip("this machine has no AMX tiles, or its kernel refuses them")
    built = Kernels(tmp_path_factory.mktemp("kernels"))
    built.threads(2)
    return built
