"""A naive model of a prefix cache without limits: every endpoint that a request has left, and nothing in between.

A cache may know less, because it has evicted; it must never know more, or something else.
"""

from collections.abc import Sequence

from jinja2 import Environment
from tokenizers import Tokenizer, pre_tokenizers

from tests.e2e.conversations import Message
from tests.e2e.replay import Answer

# A message's end that is less than the core's smallest chunk behind another endpoint is none: it would save nothing.
SMALLEST_CHUNK_TOKENS = 16


class Ledger:
    """The endpoints of all answered requests: ends of messages, final prompts and terminal consumed positions."""

    def __init__(self, tokenizer: Tokenizer, template: str) -> None:
        self._tokenizer = tokenizer
        # As Transformers renders templates.
        self._template = Environment(trim_blocks=True, lstrip_blocks=True).from_string(template)
        self._byte_of = _byte_alphabet()
        self._endpoints: set[tuple[int, ...]] = set()

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The tokens that a request for a reply to the messages consists of."""
        return self._tokens(messages, add_generation_prompt=True)

    def cuts(self, prompt: Sequence[int]) -> set[int]:
        """Where the prompt may be cut: lengths of the endpoints that it begins with, and 0."""
        return {0} | {len(endpoint) for endpoint in self._endpoints if endpoint == tuple(prompt[: len(endpoint)])}

    def consumed(self, messages: Sequence[Message], answer: Answer) -> tuple[int, ...]:
        """The prompt and all of the reply but its last token, which was sampled and never computed."""
        # An end token is counted, and not reported.
        return (*self.prompt(messages), *self._reply(answer)[: answer.completion_tokens - 1])

    def record(self, messages: Sequence[Message], answer: Answer) -> None:
        """Takes note of what a request has left."""
        last = answer.cached_tokens
        for count in range(1, len(messages) + 1):
            end = self._tokens(messages[:count], add_generation_prompt=False)
            if len(end) >= last + SMALLEST_CHUNK_TOKENS:
                self._endpoints.add(end)
                last = len(end)
        self._endpoints.update([self.prompt(messages), self.consumed(messages, answer)])

    def _tokens(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> tuple[int, ...]:
        text = self._template.render(messages=messages, add_generation_prompt=add_generation_prompt)
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _reply(self, answer: Answer) -> list[int]:
        ids = []
        for token in answer.logprobs:
            name = "".join(self._byte_of[byte] for byte in token["bytes"])
            # Special tokens are named by their own text, all others by one letter a byte.
            identity = self._tokenizer.token_to_id(name)
            ids.append(self._tokenizer.token_to_id(token["token"]) if identity is None else identity)
        return ids


def _byte_alphabet() -> dict[int, str]:
    """The letter that byte-level vocabularies spell each byte with."""
    letters = set(pre_tokenizers.ByteLevel.alphabet())
    plain = {byte: chr(byte) for byte in range(256) if chr(byte) in letters}
    shifted = sorted(letters - set(plain.values()))
    others = (byte for byte in range(256) if byte not in plain)
    return plain | dict(zip(others, shifted, strict=True))
