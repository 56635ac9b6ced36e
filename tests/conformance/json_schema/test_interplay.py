"""An answer's form beside tools and reasoning: a call or the form, behind a thought, whatever the dice say."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from ignition.frontend.assets import ReasoningParser, ToolParser
from scripts.server import binary, start_flare
from tests.conformance.json_schema.dice import build_tokenizer, write_dice

CHAT = "/v1/chat/completions"
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 500}, "s": {"type": "string", "maxLength": 6}},
    "required": ["n", "s"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("look", "move_to")
]
SEEDS = range(24)
FORMS = {
    "hermes": (ToolParser.HERMES_JSON, ReasoningParser.THINK_TAGS),
    "llama": (ToolParser.LLAMA3_JSON, ReasoningParser.NONE),
    "harmony": (ToolParser.HARMONY, ReasoningParser.HARMONY),
}
# What ends thoughts, strings and objects is likelier than the dice have it, so that answers end within the context.
ENDINGS = {"</think>": 6, "<|end|>": 6, '"': 5, "}": 5}


@pytest.fixture(scope="module", params=FORMS)
def http(
    request: pytest.FixtureRequest, captured: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    core = write_dice(captured, tmp_path_factory.mktemp("dice") / "core", *FORMS[request.param])
    with start_flare(binary("debug"), core) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        client.headers["x-form"] = request.param
        yield client
    assert server.process.returncode == 0


def ask(http: httpx.Client, seed: int, **fields: Any) -> dict[str, Any]:
    """One choice."""
    tokenizer = build_tokenizer()
    bias = {**ENDINGS, **fields.pop("bias", {})}
    request = {
        "messages": [{"role": "user", "content": "roll"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "rolled", "schema": SCHEMA}},
        "logit_bias": {str(tokenizer.token_to_id(mark)): value for mark, value in bias.items()},
        "temperature": 1,
        "seed": seed,
        "max_tokens": 300,
        **fields,
    }
    reply = http.post(CHAT, json=request)
    assert reply.status_code == 200, reply.text
    choice: dict[str, Any] = reply.json()["choices"][0]
    return choice


def kind(choice: dict[str, Any]) -> str:
    """What an answer is, if it is one of what it may be."""
    message = choice["message"]
    if choice["finish_reason"] == "length":
        return "cut"
    if choice["finish_reason"] == "tool_calls":
        assert not message["content"], message
        for call in message["tool_calls"]:
            assert call["function"]["name"] in ("look", "move_to")
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
        return "call"
    assert choice["finish_reason"] == "stop", choice
    value = json.loads(message["content"])
    assert value.keys() == {"n", "s"} and 0 <= value["n"] <= 500 and len(value["s"]) <= 6, value
    return "thought and answer" if message.get("reasoning_content") else "answer"


def kinds(http: httpx.Client, **fields: Any) -> Counter[str]:
    """How often each kind of answer came."""
    with ThreadPoolExecutor(4) as pool:
        return Counter(pool.map(lambda seed: kind(ask(http, seed, **fields)), SEEDS))


def test_without_tools_there_are_answers_alone(http: httpx.Client) -> None:
    seen = kinds(http)
    assert seen["answer"] + seen["thought and answer"] >= len(SEEDS) / 2
    assert seen["call"] == 0
    assert (seen["thought and answer"] > 0) == (http.headers["x-form"] != "llama")


def test_with_tools_an_answer_is_a_call_or_has_its_form(http: httpx.Client) -> None:
    seen = kinds(http, tools=TOOLS)
    assert seen["call"] > 0
    assert seen["answer"] + seen["thought and answer"] > 0
    assert seen["cut"] <= len(SEEDS) / 2


def test_a_single_call_is_all_where_calls_are_not_parallel(http: httpx.Client) -> None:
    with ThreadPoolExecutor(4) as pool:
        choices = list(pool.map(lambda seed: ask(http, seed, tools=TOOLS, parallel_tool_calls=False), SEEDS))
    assert Counter(map(kind, choices))["call"] > 0
    assert all(len(choice["message"].get("tool_calls") or [None]) == 1 for choice in choices)
