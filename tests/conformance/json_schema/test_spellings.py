"""Every spelling of an answer's form in the four APIs, with a real model; forms beside what else requests ask for."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from pydantic_core import from_json

from scripts.server import Server

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "people": {"type": "integer", "minimum": 0}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
UNKNOWN = {"type": "string", "format": "moon-phase"}
GRAMMAR = 'start: "(" WORD ("," WORD)* ")"\nWORD: /[a-z]{1,5}/'


def of_schema(text: str) -> bool:
    return jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(text))


def of_object(text: str) -> bool:
    return isinstance(json.loads(text), dict)


def begins_object(text: str) -> bool:
    """Whether an object's text is cut off; anything else is a `ValueError`."""
    return isinstance(from_json(text, allow_partial="trailing-strings"), dict)


def matching(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text) is not None


def typed(schema: object) -> dict[str, Any]:
    return {"type": "json_schema", "name": "city", "schema": schema}


def wrapped(schema: object) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}}


SHARED: list[tuple[dict[str, Any], Callable[[str], bool]]] = [
    (wrapped(SCHEMA), of_schema),
    ({"response_format": {"type": "json_object"}}, of_object),
    ({"guided_json": SCHEMA}, of_schema),
    ({"guided_json": json.dumps(SCHEMA)}, of_schema),
    ({"guided_regex": "[A-Z][a-z]{2,6}, [0-9]{4}"}, matching("[A-Z][a-z]{2,6}, [0-9]{4}")),
    ({"guided_choice": ["Rhine", "Danube", "Elbe river"]}, matching("Rhine|Danube|Elbe river")),
    ({"guided_grammar": GRAMMAR}, matching(r"\([a-z]{1,5}(,[a-z]{1,5})*\)")),
    ({"structured_outputs": {"json": SCHEMA}}, of_schema),
    ({"structured_outputs": {"json_object": True}}, of_object),
    ({"structured_outputs": {"regex": "(yes|no)!"}}, matching("(yes|no)!")),
    ({"structured_outputs": {"choice": ["up", "down"]}}, matching("up|down")),
    ({"structured_outputs": {"grammar": GRAMMAR}}, matching(r"\([a-z]{1,5}(,[a-z]{1,5})*\)")),
]
ANSWERED = [
    *((path, fields, check) for path in (CHAT, COMPLETIONS) for fields, check in SHARED),
    (RESPONSES, {"text": {"format": typed(SCHEMA)}}, of_schema),
    (RESPONSES, {"text": {"format": {"type": "json_object"}}}, of_object),
    (MESSAGES, {"output_config": {"format": typed(SCHEMA)}}, of_schema),
]
REFUSED = [
    *(
        (path, fields, param)
        for path in (CHAT, COMPLETIONS)
        for fields, param in [
            (wrapped(UNKNOWN), "response_format.json_schema.schema"),
            ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
            ({"response_format": {"type": "yaml"}}, "response_format.type"),
            ({"guided_json": UNKNOWN}, "guided_json"),
            ({"guided_regex": "(?=a)b"}, "guided_regex"),
            ({"guided_choice": []}, "guided_choice"),
            ({"guided_grammar": "start: nowhere"}, "guided_grammar"),
            ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
            ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
        ]
    ),
    (RESPONSES, {"text": {"format": typed(UNKNOWN)}}, "text.format.schema"),
    (MESSAGES, {"output_config": {"format": typed(UNKNOWN)}}, "output_config.format.schema"),
]


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=120) as client:
        yield client


def body(path: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A request of that API with these fields."""
    question = "Name a river or a city of Europe."
    message = [{"role": "user", "content": question}]
    limit, asked = ("max_output_tokens", {"input": question}) if path == RESPONSES else ("max_tokens", {})
    if path != RESPONSES:
        asked = {"prompt": question} if path == COMPLETIONS else {"messages": message}
    return {**asked, "temperature": 1.0, limit: 100, **fields}


def answer(path: str, reply: dict[str, Any]) -> tuple[str, bool]:
    """An answer's text, and whether it is whole."""
    if path == CHAT:
        choice = reply["choices"][0]
        return choice["message"]["content"], choice["finish_reason"] == "stop"
    if path == COMPLETIONS:
        return reply["choices"][0]["text"], reply["choices"][0]["finish_reason"] == "stop"
    if path == MESSAGES:
        return reply["content"][0]["text"], reply["stop_reason"] == "end_turn"
    return reply["output"][-1]["content"][0]["text"], reply["status"] == "completed"


@pytest.mark.parametrize(("path", "fields", "check"), ANSWERED)
def test_a_form_is_kept_under_every_name(
    http: httpx.Client, path: str, fields: Any, check: Callable[[str], bool]
) -> None:
    reply = http.post(path, json=body(path, fields))
    assert reply.status_code == 200, reply.text
    text, is_whole = answer(path, reply.json())
    # An object may go on and on, in its members, in a number or in the space between them.
    assert check(text) if is_whole else check in (of_object, of_schema) and begins_object(text), text


@pytest.mark.parametrize(("path", "fields", "param"), REFUSED)
def test_what_cannot_be_kept_is_refused_by_name(http: httpx.Client, path: str, fields: Any, param: str) -> None:
    reply = http.post(path, json=body(path, fields))
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert param in error["message"]
    assert error.get("param", param) == param


def test_every_choice_has_the_form_and_a_seed_reproduces_them(http: httpx.Client) -> None:
    asked = body(CHAT, {**wrapped(SCHEMA), "n": 3, "seed": 5})
    first, again = (http.post(CHAT, json=asked).json() for _ in range(2))
    texts = [choice["message"]["content"] for choice in first["choices"]]
    assert texts == [choice["message"]["content"] for choice in again["choices"]]
    assert len(set(texts)) > 1
    is_whole = [choice["finish_reason"] == "stop" for choice in first["choices"]]
    assert all(of_schema(text) if whole else begins_object(text) for text, whole in zip(texts, is_whole, strict=True))


def test_a_prompt_from_the_cache_gives_the_same_answer(http: httpx.Client) -> None:
    asked = body(CHAT, {**wrapped(SCHEMA), "seed": 9})
    asked["messages"] = [{"role": "user", "content": "Name a city. " * 40}]
    replies = [http.post(CHAT, json=asked).json() for _ in range(2)]
    (first, is_whole), (again, _) = (answer(CHAT, reply) for reply in replies)
    assert replies[1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert first == again
    assert of_schema(first) if is_whole else begins_object(first)


def test_an_abandoned_answer_disturbs_no_other(http: httpx.Client) -> None:
    endless = body(CHAT, {"guided_regex": "([a-z]{1,9} ){500}", "stream": True})
    for _ in range(4):
        with http.stream("POST", CHAT, json=endless) as response:
            next(line for line in response.iter_lines() if '"content"' in line)
    text, is_whole = answer(CHAT, http.post(CHAT, json=body(CHAT, wrapped(SCHEMA))).json())
    assert of_schema(text) if is_whole else begins_object(text)


def test_a_complete_answer_ends_without_a_token_for_its_end(http: httpx.Client) -> None:
    reply = http.post(CHAT, json=body(CHAT, {"guided_regex": "A", "ignore_eos": True})).json()
    assert answer(CHAT, reply) == ("A", True)
    assert reply["usage"]["completion_tokens"] == 1
