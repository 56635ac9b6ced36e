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


def body(draw: random.Random, *, stream: bool, words: int, max_tokens: int) -> dict[str, object]:
    told = " ".join(draw.choice(["river", "stone", "light", "seven"]) for _ in range(words))
    return {
        "messages": [{"role": "user", "content": f"Tell a long story about: {told}"}],
        "max_tokens": max_tokens,
        "n": draw.choice([1, 1, 1, 2]),
        "stream": stream,
        "seed": draw.randrange(1 << 31),
    }


async def stay(client: httpx.AsyncClient, draw: random.Random) -> str:
    """A client that wants its answer, and gets it."""
    request = body(draw, stream=draw.random() < 0.5, words=draw.choice([1, 60]), max_tokens=draw.choice([1, 4, 16]))
    response = await client.post(CHAT, json=request)
    assert not request["stream"] or response.text.endswith("data: [DONE]\n\n")
    return f"stayed: {response.status_code}"


async def leave_while_reading(client: httpx.AsyncClient, draw: random.Random) -> str:
    """A client that leaves after some of a stream."""
    request = body(draw, stream=True, words=draw.choice([1, 60, 700]), max_tokens=2000)
    chunks_left = draw.choice([1, 2, 8])
    async with client.stream("POST", CHAT, json=request) as response:
        async for line in response.aiter_lines():
            chunks_left -= line.startswith("data: ")
            if chunks_left == 0:
                break
    return f"left while reading: {response.status_code}"


async def leave_while_waiting(client: httpx.AsyncClient, draw: random.Random) -> str:
    """A client that leaves after some time, whatever has come by then."""
    patience_s = draw.choice([0.001, 0.05, 0.3, 1.5])
    request = body(draw, stream=draw.random() < 0.5, words=draw.choice([1, 60, 700]), max_tokens=2000)
    try:
        async with asyncio.timeout(patience_s):
            await client.post(CHAT, json=request)
    except TimeoutError:
        return "left while waiting"
    return "got a long answer at once"


async def one_client(client: httpx.AsyncClient, seed: int) -> str:
    draw = random.Random(seed)
    await asyncio.sleep(draw.random() * 3)
    (kind,) = draw.choices([stay, leave_while_reading, leave_while_waiting], weights=[15, 15, 70])
    return await kind(client, draw)


async def crowd(url: str) -> Counter[str]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=400) as client:
        outcomes = await asyncio.gather(*(one_client(client, SEED * 1000 + i) for i in range(REQUESTS)))
    return Counter(outcomes)


def test_two_hundred_clients_of_which_many_leave(server: Server, wait_until_idle) -> None:
    before = wait_until_idle(server)
    outcomes = asyncio.run(crowd(server.url))
    after = wait_until_idle(server)
    told = f"seed {SEED}: {dict(outcomes)}"
    # Nobody who stays is refused or forgotten, and all three kinds are there.
    assert outcomes.keys() == {"stayed: 200", "left while reading: 200", "left while waiting"}, told
    assert min(outcomes.values()) >= 20, told
    assert not after["failed"]
    assert after["requests_cancelled"] - before["requests_cancelled"] >= outcomes["left while reading: 200"], told
    assert after["requests_finished"] - before["requests_finished"] >= outcomes["stayed: 200"], told
    assert after["requests_failed"] == before["requests_failed"], told


# An end token does not end it: nobody is to be done before the client has left.
COUNT = {
    "messages": [{"role": "user", "content": "Count from one to one thousand."}],
    "max_tokens": 4000,
    "ignore_eos": True,
}


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
