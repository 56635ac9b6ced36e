"""The agents that engines are compared on: their conversations, their turns, and a long prompt among decoders.

Texts are made of ordinary words, drawn anew for every agent and round, so no agent profits from another's history.
Replies are forced to one word by a bias, so both engines continue the same text although their roundings differ.
"""

import contextlib
import dataclasses
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from safetensors import safe_open
from tokenizers import Tokenizer

from benchmarks.workload import CHAT, COMPLETIONS, DECODE_PROMPT_TOKENS, events, prompts
from scripts.server import Server

TURNS = 8
SYSTEM_WORDS = 1500
RESULT_WORDS = 275
REPLY_TOKENS = 32
COLD_TOKENS = 7500
DECODERS = 3
# More than they reach before the cold prompt is done.
DECODER_TOKENS_MAX = 8000
_TOKENS_BEFORE_COLD = 8
_START_TIMEOUT_S = 60
_REPLY_WORD = " river"
_WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend"
).split()


@dataclasses.dataclass(frozen=True)
class Turn:
    """One turn as its client saw it."""

    ttft_s: float
    prompt_tokens: int
    # Prompt tokens that were not taken from a cache.
    computed_tokens: int

    @property
    def consumed_tokens(self) -> int:
        """What the turn leaves to the next: its prompt, and its reply without the last token, which is not computed."""
        return self.prompt_tokens + REPLY_TOKENS - 1


@dataclasses.dataclass(frozen=True)
class Stall:
    """What decoders felt of a long cold prompt, and how long it took itself."""

    worst_gap_s: float
    cold_ttft_s: float


class Replies:
    """Sampling that makes a model say one word over and over, and the text that comes of it."""

    @classmethod
    def of(cls, core: Path) -> Self:
        """With the word's token by the core's own tokenizer."""
        with safe_open(core / "rank-0.safetensors", "numpy") as file:
            tokenizer = Tokenizer.from_str(file.get_tensor("frontend.tokenizer").tobytes().decode())
        (token,) = tokenizer.encode(_REPLY_WORD, add_special_tokens=False).ids
        return cls(token)

    def __init__(self, word_token: int) -> None:
        self._fields = {"top_k": 1, "ignore_eos": True, "logit_bias": {str(word_token): 100}}
        self.text = _REPLY_WORD * REPLY_TOKENS

    def request(self, tokens: int, **fields: Any) -> dict[str, Any]:
        """A streamed request for a reply of so many tokens."""
        options = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": tokens}
        return {**fields, **self._fields, **options}


def run_agents(server: Server, replies: Replies, count: int, *, turns: int, seed: int) -> list[list[Turn]]:
    """The turns of `count` agents at the same time, each without a pause."""
    with ThreadPoolExecutor(count) as pool:
        waiting = [pool.submit(_agent, server, replies, turns, random.Random(seed + i)) for i in range(count)]
        return [future.result() for future in waiting]


def stall(server: Server, replies: Replies, *, cold_tokens: int, seed: int) -> Stall:
    """The worst pause between two tokens of running decoders while a cold prompt is prefilled."""
    decoders = [
        _Decoder(server, replies.request(DECODER_TOKENS_MAX, prompt=prompt))
        for prompt in prompts(DECODERS, DECODE_PROMPT_TOKENS, seed=seed)
    ]
    with ThreadPoolExecutor(DECODERS) as pool:
        running = [pool.submit(decoder.run) for decoder in decoders]
        try:
            for decoder in decoders:
                if not decoder.is_decoding.wait(_START_TIMEOUT_S):
                    raise ValueError("a decoder did not start")
            (cold,) = prompts(1, cold_tokens, seed=seed + 1)
            sent = time.perf_counter()
            ttft_s = _ttft_s(server, replies.request(1, prompt=cold))
        finally:
            for decoder in decoders:
                decoder.is_over.set()
        for future in running:
            future.result()
    return Stall(max(decoder.worst_gap_s(sent, sent + ttft_s) for decoder in decoders), ttft_s)


def hit_ttft_s(server: Server, replies: Replies, *, cached_tokens: int, new_tokens: int, seed: int) -> float:
    """Time to the first token of a prompt of which all but the last tokens were answered before."""
    (prompt,) = prompts(1, cached_tokens + new_tokens, seed=seed)
    _ttft_s(server, replies.request(1, prompt=prompt[:cached_tokens]))
    return _ttft_s(server, replies.request(1, prompt=prompt))


def _agent(server: Server, replies: Replies, turns: int, draw: random.Random) -> list[Turn]:
    messages = [_message("system", _words(draw, SYSTEM_WORDS)), _message("user", _words(draw, RESULT_WORDS))]
    told = []
    for _ in range(turns):
        told.append(_turn(server, replies.request(REPLY_TOKENS, messages=messages)))
        messages.append(_message("assistant", replies.text))
        messages.append(_message("tool", _words(draw, RESULT_WORDS)))
    return told


def _turn(server: Server, request: dict[str, Any]) -> Turn:
    sent = time.perf_counter()
    first = None
    last: dict[str, Any] = {}
    for event in events(server, CHAT, request):
        if first is None and _has_text(event):
            first = time.perf_counter()
        last = {**last, **{key: event[key] for key in ("usage", "timings") if event.get(key)}}
    usage = last["usage"]
    if first is None or usage["completion_tokens"] != REPLY_TOKENS:
        raise ValueError(f"the server generated {usage['completion_tokens']} tokens of {REPLY_TOKENS}")
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    # llama-server counts what it computed itself; the difference of its other two numbers is the same.
    computed = last.get("timings", {}).get("prompt_n", usage["prompt_tokens"] - cached)
    return Turn(first - sent, usage["prompt_tokens"], computed)


class _Decoder:
    """A streamed answer that runs until it is over."""

    def __init__(self, server: Server, request: dict[str, Any]) -> None:
        self._server = server
        self._request = request
        self._arrivals: list[float] = []
        self.is_decoding = threading.Event()
        self.is_over = threading.Event()

    def run(self) -> None:
        with contextlib.closing(events(self._server, COMPLETIONS, self._request)) as answer:
            for event in answer:
                if _has_text(event):
                    self._arrivals.append(time.perf_counter())
                if len(self._arrivals) == _TOKENS_BEFORE_COLD:
                    self.is_decoding.set()
                if self.is_over.is_set():
                    break

    def worst_gap_s(self, start: float, end: float) -> float:
        """The longest pause that overlaps the time from `start` to `end`."""
        pairs = zip(self._arrivals, self._arrivals[1:], strict=False)
        return max(after - before for before, after in pairs if after > start and before < end)


def _ttft_s(server: Server, request: dict[str, Any]) -> float:
    sent = time.perf_counter()
    arrivals = [time.perf_counter() for event in events(server, COMPLETIONS, request) if _has_text(event)]
    return arrivals[0] - sent


def _has_text(event: dict[str, Any]) -> bool:
    choices = event.get("choices", [])
    return any(choice.get("text") or choice.get("delta", {}).get("content") for choice in choices)


def _words(draw: random.Random, count: int) -> str:
    return " ".join(draw.choice(_WORDS) for _ in range(count))


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
