"""Requests that the server must refuse: each with the right status, the whole envelope, and nothing lost."""

import json
from typing import Any

import httpx
import pytest

from scripts.server import Server

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]
JSON_TYPE = {"Content-Type": "application/json"}


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The envelope's error, once the status and its form are right."""
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    return body["error"]


@pytest.fixture(autouse=True)
def nothing_is_lost(server: Server, wait_until_idle) -> Any:
    """After each of these tests the server is idle, and as healthy as before."""
    yield
    engine = wait_until_idle(server)
    assert not engine["failed"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "Hello"}, "messages"),
        ({"messages": [{"content": "Hello"}]}, None),
        ({"messages": [{"role": "user", "content": 3}]}, None),
        ({"messages": [{"role": "pirate", "content": "Hello"}]}, None),
        ({"messages": HELLO, "max_tokens": "many"}, "max_tokens"),
        ({"messages": HELLO, "max_tokens": 0}, "max_tokens"),
        ({"messages": HELLO, "max_tokens": -1}, "max_tokens"),
        ({"messages": HELLO, "n": 0}, "n"),
        ({"messages": HELLO, "n": 100000}, "n"),
        ({"messages": HELLO, "temperature": -0.5}, "temperature"),
        ({"messages": HELLO, "temperature": "hot"}, "temperature"),
        ({"messages": HELLO, "top_p": 0}, "top_p"),
        ({"messages": HELLO, "top_p": 1.5}, "top_p"),
        ({"messages": HELLO, "min_p": 2}, "min_p"),
        ({"messages": HELLO, "repetition_penalty": 0}, "repetition_penalty"),
        ({"messages": HELLO, "presence_penalty": 99}, "presence_penalty"),
        ({"messages": HELLO, "logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"messages": HELLO, "logit_bias": {"999999999": 1}}, "logit_bias"),
        ({"messages": HELLO, "logit_bias": {"one": 1}}, "logit_bias"),
        ({"messages": HELLO, "stop": [["nested"]]}, "stop"),
        ({"messages": HELLO, "stream": "yes"}, "stream"),
        ({}, "messages"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_wrong_fields_are_named(http: httpx.Client, body: dict[str, Any], param: str | None) -> None:
    error = error_of(http.post(CHAT, json=body), 400)
    assert error["type"] == "invalid_request_error"
    if param is not None:
        assert error["param"] == param


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"text"', b'{"messages": [', b'{"messages": "\xff\xfe"}', b"\x00" * 16],
    ids=repr,
)
def test_what_is_not_a_json_object_is_refused(http: httpx.Client, body: bytes) -> None:
    for path in (CHAT, COMPLETIONS):
        error = error_of(http.post(path, content=body, headers=JSON_TYPE), 400)
        assert error["type"] == "invalid_request_error"


def test_deep_nesting_is_refused(http: httpx.Client) -> None:
    body = b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    error_of(http.post(CHAT, content=body, headers=JSON_TYPE), 400)


def test_a_body_of_100_mb_is_refused(http: httpx.Client, server: Server) -> None:
    resident = _resident_bytes(server)
    body = json.dumps({"messages": [{"role": "user", "content": "a" * 100_000_000}]}).encode()
    error_of(http.post(CHAT, content=body, headers=JSON_TYPE), 413)
    assert _resident_bytes(server) - resident < 64 << 20


def test_a_body_that_is_not_declared_json_is_refused(http: httpx.Client) -> None:
    body = json.dumps({"messages": HELLO}).encode()
    assert error_of(http.post(CHAT, content=body, headers={"Content-Type": "text/plain"}), 415)["code"] == (
        "unsupported_media_type"
    )


def test_unknown_fields_and_nulls_are_ignored(http: httpx.Client) -> None:
    body = {
        "messages": HELLO,
        "max_tokens": 2,
        "top_p": None,
        "stop": None,
        "seed": None,
        "user": "someone",
        "metadata": {"a": "b"},
        "not_a_field": {"deep": [1, 2, 3]},
    }
    response = http.post(CHAT, json=body)
    assert response.status_code == 200, response.text


def test_any_model_is_served_and_an_unknown_one_is_not_listed(http: httpx.Client, model: str) -> None:
    response = http.post(CHAT, json={"model": "no-such-model", "messages": HELLO, "max_tokens": 1})
    assert (response.status_code, response.json()["model"]) == (200, model)
    assert error_of(http.get("/v1/models/no-such-model"), 404)["code"] == "model_not_found"


def test_unknown_paths_and_methods_have_the_envelope(http: httpx.Client) -> None:
    error_of(http.get("/v1/nothing"), 404)
    error_of(http.get(CHAT), 405)


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_longer_than_the_context_is_refused(http: httpx.Client, stream: bool) -> None:
    body = {"messages": [{"role": "user", "content": "one two three four " * 4000}], "stream": stream}
    error = error_of(http.post(CHAT, json=body), 400)
    assert error["code"] == "context_length_exceeded"


def test_an_empty_prompt_is_refused(http: httpx.Client) -> None:
    assert error_of(http.post(COMPLETIONS, json={"prompt": ""}), 400)["param"] == "prompt"


def test_temperature_zero_is_refused_with_the_way_out(http: httpx.Client) -> None:
    error = error_of(http.post(CHAT, json={"messages": HELLO, "temperature": 0}), 400)
    assert error["param"] == "temperature"
    assert "top_k" in error["message"]


def test_temperature_zero_can_mean_top_1(start_server, http: httpx.Client) -> None:
    body = {"messages": HELLO, "max_tokens": 12}
    greedy = http.post(CHAT, json={**body, "top_k": 1}).json()
    server = start_server("--zero-temperature", "top-1")
    mapped = httpx.post(f"{server.url}{CHAT}", json={**body, "temperature": 0}, timeout=60).json()
    assert mapped["choices"][0]["message"] == greedy["choices"][0]["message"]


def _resident_bytes(server: Server) -> int:
    with open(f"/proc/{server.process.pid}/status") as status:
        (line,) = [line for line in status if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024
