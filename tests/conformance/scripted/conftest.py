"""A server of the weather's scripts, and the official clients of its three APIs."""

from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest

from scripts.server import Server, binary, start_flare
from tests.conformance.scripted.checkpoint import prepare_scripted
from tests.conformance.scripted.weather import WEATHER

CONTEXT_TOKENS = 4096


@pytest.fixture(scope="session")
def weather_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_scripted(tmp_path_factory.mktemp("weather"), WEATHER, context_tokens=CONTEXT_TOKENS)


@pytest.fixture(scope="session")
def weather(weather_core: Path) -> Iterator[Server]:
    with start_flare(binary("debug"), weather_core) as running:
        yield running
    assert running.process.returncode == 0


@pytest.fixture(scope="session")
def openai_client(weather: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{weather.url}/v1", api_key="unused", max_retries=0, timeout=60) as made:
        yield made


@pytest.fixture(scope="session")
def anthropic_client(weather: Server) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=weather.url, api_key="unused", max_retries=0, timeout=60) as made:
        yield made


@pytest.fixture
def salt(request: pytest.FixtureRequest) -> dict[str, str]:
    """Further fields that keep a test's requests from finding other tests' prefixes in the cache."""
    return {"cache_salt": request.node.nodeid}
