"""Clients that go away, in any phase of a request: the server ends up idle, with every page and slot free."""

import asyncio
import random
from collections import Counter

import httpx
import pytest

from scripts.server import Server

REQUESTS = 200
SEED = 20
CHAT = "/v1/chat/completions"


def body(draw: random.Random, *, stream: bool) -> dict[str, object]:
    words = " ".join(draw.choice(["river", "stone", "light", "seven"]) for _ in range(draw.choice([1, 60, 700])))
    return {
        "messages": [{"role": "user", "content": f"Tell a long story about: {words}"}],
        "max_tokens": draw.choice([1, 4, 16, 200]),
        "n": draw.choice([1, 1, 1, 2]),
        "stream": stream,
        "seed": draw.randrange(1 << 31),
    }


async def one_request(client: httpx.AsyncClient, seed: int) -> str:
    """One request that stays or goes away at a random moment; returns what became of it."""
    draw = random.Random(seed)
    await asyncio.sleep(draw.random() * 4)
    stream = draw.random() < 0.5
    patience_s = draw.choice([0.001, 0.05, 0.3, 1.5, 120.0])
    chunks_max = draw.choice([1, 3, 10_000])
    try:
        async with asyncio.timeout(patience_s):
            if not stream:
                response = await client.post(CHAT, json=body(draw, stream=False))
                return f"status {response.status_code}"
            async with client.stream("POST", CHAT, json=body(draw, stream=True)) as response:
                lines = 0
                async for line in response.aiter_lines():
                    lines += line.startswith("data: ")
                    if line == "data: [DONE]":
                        return f"status {response.status_code}"
                    if lines > chunks_max:
                        return "left while reading"
                return f"status {response.status_code}"
    except TimeoutError:
        return "left while waiting"


async def crowd(url: str) -> Counter[str]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=180) as client:
        outcomes = await asyncio.gather(*(one_request(client, SEED * 1000 + i) for i in range(REQUESTS)))
    return Counter(outcomes)


def test_two_hundred_clients_of_which_many_leave(server: Server, wait_until_idle) -> None:
    before = wait_until_idle(server)
    outcomes = asyncio.run(crowd(server.url))
    after = wait_until_idle(server)
    assert not after["failed"]
    told = f"seed {SEED}: {dict(outcomes)}"
    assert outcomes["left while waiting"] >= 20, told
    assert outcomes["left while reading"] >= 5, told
    assert outcomes["status 200"] >= 10, told
    assert outcomes.total() == REQUESTS
    # A full queue is an answer too; nothing else is.
    assert set(outcomes) <= {
        "left while waiting",
        "left while reading",
        "status 200",
        "status 429",
        "status 503",
    }, told
    assert after["requests_cancelled"] > before["requests_cancelled"], told
    assert after["requests_finished"] > before["requests_finished"], told
    assert after["requests_failed"] == before["requests_failed"], told


COUNT = {"messages": [{"role": "user", "content": "Count from one to one thousand."}], "max_tokens": 4000}


def test_leaving_a_stream_cancels_its_request(server: Server, wait_until_idle) -> None:
    before = wait_until_idle(server)
    request = {**COUNT, "stream": True}
    with httpx.stream("POST", f"{server.url}{CHAT}", json=request, timeout=30) as response:
        next(line for line in response.iter_lines() if line.startswith("data: "))
    after = wait_until_idle(server, timeout_s=5)
    assert after["requests_cancelled"] == before["requests_cancelled"] + 1


def test_leaving_a_whole_answer_cancels_its_request(server: Server, wait_until_idle) -> None:
    before = wait_until_idle(server)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}{CHAT}", json=COUNT, timeout=httpx.Timeout(30, read=0.5))
    after = wait_until_idle(server, timeout_s=5)
    assert after["requests_cancelled"] == before["requests_cancelled"] + 1
