"""Replays recorded conversations at a server, and keeps what it answered exactly as it came.

Numbers are kept as the text that the JSON had, so comparing two answers compares every digit of every log probability.
"""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from scripts.server import Server
from tests.e2e.conversations import Conversation, Message, Step

CHAT = "/v1/chat/completions"
SAMPLED = {"temperature": 1, "top_k": 20, "top_p": 1}
GREEDY = {"top_k": 1}
TOP_LOGPROBS = 20
# As many as the server has slots.
REPLAYS_AT_ONCE = 4
# Enough for the longest prompt behind every other request of a small machine's tests.
_TIMEOUT_S = 300


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the model said, and apart from it what the server says about how it got there."""

    text: str
    finish_reason: str
    # The reply's tokens with their alternatives; numbers as text.
    logprobs: list[dict[str, Any]]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = dataclasses.field(compare=False)


def ask(server: Server, messages: Sequence[Message], step: Step, sampling: dict[str, Any]) -> Answer:
    """One request for a step's reply."""
    request = {
        "messages": messages,
        "max_tokens": step.output_tokens,
        "seed": step.seed,
        "logprobs": True,
        "top_logprobs": TOP_LOGPROBS,
        **sampling,
    }
    response = httpx.post(f"{server.url}{CHAT}", json=request, timeout=_TIMEOUT_S)
    assert response.status_code == 200, f"{step.name}: {response.text}"
    body = json.loads(response.text, parse_float=str)
    (choice,) = body["choices"]
    usage = body["usage"]
    return Answer(
        text=choice["message"]["content"],
        finish_reason=choice["finish_reason"],
        logprobs=choice["logprobs"]["content"],
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
        cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
    )


class Replay:
    """One conversation under way; it may go from server to server between its steps."""

    def __init__(self, conversation: Conversation, sampling: dict[str, Any] = SAMPLED) -> None:
        self.conversation = conversation
        self.sampling = sampling
        self.answers: list[Answer] = []

    @property
    def step(self) -> Step | None:
        """The step that comes next."""
        steps = self.conversation.steps
        return steps[len(self.answers)] if len(self.answers) < len(steps) else None

    def messages(self, step: Step) -> list[Message]:
        """The whole conversation up to a step's own messages, with the replies that were given."""
        if step.follows is None:
            return list(step.messages)
        earlier = self.messages(self.conversation.steps[step.follows])
        reply = {"role": "assistant", "content": self.answers[step.follows].text}
        return [*earlier, reply, *step.messages]

    def ask_next(self, server: Server) -> Answer:
        assert self.step is not None
        answer = ask(server, self.messages(self.step), self.step, self.sampling)
        self.answers.append(answer)
        return answer

    def finish(self, server: Server) -> list[Answer]:
        """Takes all steps that are left."""
        while self.step is not None:
            self.ask_next(server)
        return self.answers


Answers = dict[str, list[Answer]]


def replay_together(
    server: Server, conversations: Iterable[Conversation], sampling: dict[str, Any] = SAMPLED
) -> Answers:
    """All conversations, some at the same time: on the host the crowd does not change an answer."""
    replays = [Replay(conversation, sampling) for conversation in conversations]
    with ThreadPoolExecutor(REPLAYS_AT_ONCE) as pool:
        answers = pool.map(lambda replay: replay.finish(server), replays)
        return {replay.conversation.name: list(given) for replay, given in zip(replays, answers, strict=True)}


def assert_same(conversation: Conversation, answers: Sequence[Answer], expected: Sequence[Answer]) -> None:
    """The answers so far equal the expected ones; names the first step and token that differ."""
    assert answers
    for step, answer, right in zip(conversation.steps, answers, expected, strict=False):
        if answer == right:
            continue
        where = f"{conversation.name}, {step.name}, {answer.cached_tokens} of {answer.prompt_tokens} tokens cached"
        for number, (token, right_token) in enumerate(zip(answer.logprobs, right.logprobs, strict=False)):
            assert token == right_token, f"{where}: token {number} differs"
        assert answer == right, where
