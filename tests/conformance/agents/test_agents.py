"""Agents complete tool-using turns: they run the command that the model calls for, hand its output back and print the
model's answer to it.
"""

import re
import subprocess
import urllib.request
from pathlib import Path

import pytest

from scripts.server import Server
from tests.conformance.agents.headless import AGENTS, Agent, ClaudeCode
from tests.conformance.agents.refusing import without_streams
from tests.conformance.agents.witness import EVIDENCE, PLAY, WITNESS


def needs(agent: type[Agent]) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not agent.path().is_file(), reason=f"no {agent.path()}; `make test-agents` installs it")


def check_turn(agent: Agent, done: subprocess.CompletedProcess[str]) -> None:
    """The command ran, and the model answers so only once it has seen the output."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert (agent.work / WITNESS).read_text() == f"{EVIDENCE}\n"
    assert PLAY.answer.text in done.stdout, done.stdout + done.stderr


def prompt_tokens(server: Server) -> tuple[int, int]:
    """How many prompt tokens the server has computed, and how many it had in the cache."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=5) as response:
        metrics = response.read().decode()
    counts = dict(re.findall(r'^flare_prompt_tokens_total{source="(\w+)"} (\d+)$', metrics, flags=re.MULTILINE))
    return int(counts["computed"]), int(counts["cache"])


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.__name__, marks=needs(kind)) for kind in AGENTS])
def test_an_agent_completes_a_tool_using_turn_and_then_another(kind: type[Agent], server: Server, tmp_path: Path):
    agent = kind(server.url, tmp_path)
    check_turn(agent, agent.ask("Write the witness."))
    computed, cached = prompt_tokens(server)
    # The request with the result repeats the one before it; beside it are only the result, and a prompt for a title.
    assert cached > 0.8 * computed

    (agent.work / WITNESS).unlink()
    check_turn(agent, agent.ask("Write it once more.", again=True))
    computed_again, cached_again = prompt_tokens(server)
    # Both requests repeat all of what was there.
    assert computed_again - computed < 0.1 * computed
    assert cached_again - cached > 1.8 * cached


@needs(ClaudeCode)
def test_an_agent_completes_a_turn_without_streams(server: Server, tmp_path: Path):
    with without_streams(server) as url:
        agent = ClaudeCode(url, tmp_path)
        check_turn(agent, agent.ask("Write the witness."))
