"""Asks a server for answers of a schema's form, and judges them by readers that know nothing of its grammars."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import jsonschema
from pydantic_core import from_json

from tests.conformance.json_schema.suite import Case

CHAT = "/v1/chat/completions"
PARAM = "response_format.json_schema.schema"
REFUSAL = "the JSON schema cannot be enforced"
# Answers that the first limit cuts are asked for again under the second.
TOKEN_LIMITS = (100, 400)
_VALIDATORS = {
    "draft4": jsonschema.Draft4Validator,
    "draft6": jsonschema.Draft6Validator,
    "draft7": jsonschema.Draft7Validator,
    "draft2019-09": jsonschema.Draft201909Validator,
    "draft2020-12": jsonschema.Draft202012Validator,
}


@dataclass(frozen=True)
class Verdict:
    """What became of one schema. `fault` says what is wrong, if anything is, `place` where a schema is refused."""

    case: Case
    outcome: str
    detail: str
    fault: str = ""
    place: str = ""


def judge_all(server_url: str, cases: list[Case], *, seed: int, lanes: int = 4) -> list[Verdict]:
    """The verdicts in the order of the cases."""
    with httpx.Client(base_url=server_url, timeout=300) as http, ThreadPoolExecutor(lanes) as pool:
        return list(pool.map(lambda case: judge(http, case, seed), cases))


def judge(http: httpx.Client, case: Case, seed: int) -> Verdict:
    """Asks for one answer. One that is cut must be the beginning of the longer one that the same seed gives."""
    texts: list[str] = []
    for tokens in TOKEN_LIMITS:
        reply = ask(http, case.schema, seed, tokens)
        if reply.status_code != 200:
            return refusal(case, reply)
        choice = reply.json()["choices"][0]
        text: str = choice["message"]["content"]
        if texts and not text.startswith(texts[-1]):
            return Verdict(case, "cut", text, fault=f"the longer answer does not begin with {texts[-1]!r}")
        texts.append(text)
        if choice["finish_reason"] == "stop":
            return judge_whole(case, text)
        if choice["finish_reason"] != "length":
            return Verdict(case, "cut", text, fault=f"it finished by {choice['finish_reason']}")
    return Verdict(case, "cut", texts[-1], fault=what_is_no_prefix(texts[-1]))


def ask(http: httpx.Client, schema: dict[str, Any], seed: int, max_tokens: int) -> httpx.Response:
    """One answer at temperature 1 that must have the schema's form."""
    form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    request = {
        "messages": [{"role": "user", "content": "Answer with a short JSON value."}],
        "response_format": form,
        "temperature": 1,
        "seed": seed,
        "max_tokens": max_tokens,
    }
    return http.post(CHAT, json=request)


def refusal(case: Case, reply: httpx.Response) -> Verdict:
    """A refusal is a 400 that names the field, and the place in the schema unless it is the whole."""
    if reply.status_code != 400:
        return Verdict(case, "refused", reply.text, fault=f"status {reply.status_code}")
    error = reply.json()["error"]
    message: str = error["message"]
    if (error["param"], error["code"]) != (PARAM, "invalid_value") or REFUSAL not in message:
        return Verdict(case, "refused", message, fault="it does not say what is wrong where")
    where, _, reason = message.partition(REFUSAL)[2].partition(": ")
    pointer = where.removeprefix(" at ")
    known = pointer == "" or resolves(case.schema, pointer)
    return Verdict(case, "refused", reason, fault="" if known else f"there is nothing at {pointer}", place=pointer)


def resolves(schema: Any, pointer: str) -> bool:
    """Whether a JSON pointer leads to something in a schema."""
    for name in pointer.split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        try:
            schema = schema[int(key)] if isinstance(schema, list) else schema[key]
        except (KeyError, ValueError, IndexError, TypeError):
            return False
    return True


def judge_whole(case: Case, text: str) -> Verdict:
    """Whether an answer is JSON and valid. Of a pattern that Python does not understand nobody can say."""
    try:
        value = json.loads(text)
        validator = jsonschema.validators.validator_for(case.schema, default=_VALIDATORS[case.draft])
        validator(case.schema, format_checker=validator.FORMAT_CHECKER).validate(value)
    except re.error as error:
        return Verdict(case, "unread", f"{error}: {text}")
    except ValueError as error:
        return Verdict(case, "answered", text, fault=f"it is no JSON: {error}")
    except jsonschema.ValidationError as error:
        return Verdict(case, "answered", text, fault=f"it is not valid: {error.message}")
    return Verdict(case, "answered", text)


def what_is_no_prefix(text: str) -> str:
    """Why no JSON text begins so; empty if one does."""
    try:
        from_json(text.lstrip() or "0", allow_partial="trailing-strings")
    except ValueError as error:
        return f"no JSON begins so: {error}"
    return ""
