"""The requests that the engines are compared on, and how a served engine's answers are timed.

Prompts are random token ids, so no two share a prefix and nothing is served from a cache.
"""

import json
import random
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from scripts.server import Server

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
CONCURRENCIES = (1, 2, 4)
PREFILL_TOKENS = (512, 2048)
DECODE_PROMPT_TOKENS = 16
DECODE_TOKENS = 128

# Ordinary tokens of the vocabulary, special ones left out.
_TOKEN_IDS = range(1000, 40000)
_TIMEOUT_S = 120
# One for all requests: making a client takes longer than a short prompt's prefill. Connections are not kept: a peer may
# close an idle one just as it is used again.
_CLIENT = httpx.Client(timeout=_TIMEOUT_S, limits=httpx.Limits(max_keepalive_connections=0))


def prompts(count: int, tokens: int, *, seed: int) -> list[list[int]]:
    """`count` prompts of `tokens` random token ids."""
    draw = random.Random(seed)
    return [[draw.choice(_TOKEN_IDS) for _ in range(tokens)] for _ in range(count)]


def decode_rate(server: Server, lanes: int, *, seed: int) -> float:
    """Tokens a second of `lanes` requests at the same time, each counted from its first to its last."""
    with ThreadPoolExecutor(lanes) as pool:
        waiting = [
            pool.submit(stream_rate, server, prompt) for prompt in prompts(lanes, DECODE_PROMPT_TOKENS, seed=seed)
        ]
        return sum(future.result() for future in waiting)


def prefill_rate(server: Server, tokens: int, *, seed: int) -> float:
    """Prompt tokens a second, from the request to the answer's one token."""
    (prompt,) = prompts(1, tokens, seed=seed)
    started = time.perf_counter()
    request = {"prompt": prompt, "max_tokens": 1, "cache_prompt": False}
    response = _CLIENT.post(f"{server.url}{COMPLETIONS}", json=request)
    elapsed_s = time.perf_counter() - started
    response.raise_for_status()
    computed = response.json()["usage"]["prompt_tokens"]
    if computed != tokens:
        raise ValueError(f"the server counted {computed} prompt tokens of {tokens}")
    return tokens / elapsed_s


def first_token_s(server: Server) -> float:
    """Seconds from the start of the server's process to the first token of a short answer."""
    (prompt,) = prompts(1, DECODE_PROMPT_TOKENS, seed=0)
    request = {"prompt": prompt, "max_tokens": 1}
    _CLIENT.post(f"{server.url}{COMPLETIONS}", json=request).raise_for_status()
    return time.perf_counter() - server.started_at


def stream_rate(server: Server, prompt: list[int], fields: Mapping[str, Any] | None = None) -> float:
    """Tokens a second of one streamed completion, from its first token to its last; `fields` are sent, too."""
    request = {
        "prompt": prompt,
        "max_tokens": DECODE_TOKENS,
        "ignore_eos": True,
        "cache_prompt": False,
        "stream": True,
        "stream_options": {"include_usage": True},
        **(fields or {}),
    }
    moments = []
    completed = 0
    for event in events(server, COMPLETIONS, request):
        if any(choice.get("text") for choice in event.get("choices", [])):
            moments.append(time.perf_counter())
        completed = (event.get("usage") or {}).get("completion_tokens", completed)
    if completed != DECODE_TOKENS:
        raise ValueError(f"the server generated {completed} tokens of {DECODE_TOKENS}")
    return (completed - 1) / (moments[-1] - moments[0])


def events(server: Server, path: str, request: dict[str, Any]) -> Generator[dict[str, Any]]:
    """A streamed answer's events; leaving the iterator closes the connection, which cancels the request."""
    with _CLIENT.stream("POST", f"{server.url}{path}", json=request) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            data = line.removeprefix("data: ")
            if data != line and data != "[DONE]":
                yield json.loads(data)
