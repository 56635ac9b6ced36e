"""A server that is killed while it writes its disk tier: the next one on the same folder starts, and answers the same.

FLARE_TEST_FULL=1 kills fifty times, at a moment drawn anew each time.
"""

import contextlib
import random
import threading
import time
from pathlib import Path

import httpx
import pytest
from safetensors import safe_open

from scripts.server import Server, start_flare
from tests.e2e.conversations import Conversation, is_full, selected
from tests.e2e.replay import Answers, Replay, assert_same

pytestmark = pytest.mark.timeout(1800)

KILLS = 50 if is_full() else 5
SEED = 31
CHECKED_TURNS = 3
# Less than the conversations take, so that files are replaced for ever.
DISK_SIZE = "48MiB"
# How long a round waits for a file that is being written.
WRITE_TIMEOUT_S = 5
CONVERSATIONS = selected()[:4]


def test_kills_while_the_disk_tier_writes(flare: Path, core: Path, tmp_path: Path, truth: Answers) -> None:
    draw = random.Random(SEED)
    folder, log_path = tmp_path / "tier", tmp_path / "log"
    arguments = ["--prefix-cache-disk", str(folder), "--prefix-cache-disk-size", DISK_SIZE]
    incoming = folder / digest(core) / "incoming"
    cut_short, fetches = 0, 0
    with log_path.open("w") as log:
        for kill in range(KILLS + 1):
            conversation = draw.choice(CONVERSATIONS)
            with start_flare(flare, core, arguments=arguments, log=log) as server:
                replay = Replay(conversation.main_line(CHECKED_TURNS))
                assert_same(conversation, replay.finish(server), truth[conversation.name])
                fetches += server.health()["engine"]["fetches"]
                if kill < KILLS:
                    kill_while_writing(server, incoming, draw, truth)
                    cut_short += incoming.exists()
    told = f"seed {SEED}: {KILLS} kills, {cut_short} while a file was written, {fetches} fetches"
    assert "panicked" not in log_path.read_text(), told
    assert cut_short > 0, told
    assert fetches > 0, told


def kill_while_writing(server: Server, incoming: Path, draw: random.Random, truth: Answers) -> None:
    """Keeps the server at work on a conversation and kills it at some moment, mostly while it writes a file."""
    conversation = draw.choice(CONVERSATIONS)
    client = threading.Thread(target=talk, args=(server, conversation, truth))
    client.start()
    time.sleep(draw.uniform(0, 1))
    if draw.random() < 0.8:
        deadline = time.monotonic() + WRITE_TIMEOUT_S
        while not incoming.exists() and time.monotonic() < deadline:
            time.sleep(0.0001)
        time.sleep(draw.uniform(0, 0.001))
    server.process.kill()
    server.process.wait()
    client.join()


def talk(server: Server, conversation: Conversation, truth: Answers) -> None:
    """A client that goes on until the server is gone."""
    replay = Replay(conversation)
    with contextlib.suppress(httpx.TransportError):
        replay.finish(server)
    if replay.answers:
        assert_same(conversation, replay.answers, truth[conversation.name])


def digest(core: Path) -> str:
    """The name of the folder that the core's checkpoints lie in."""
    with safe_open(core / "rank-0.safetensors", "numpy") as file:
        name: str = file.metadata()["digest"]
    return name
