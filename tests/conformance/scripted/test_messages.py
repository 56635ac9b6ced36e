"""A tool-using turn over the messages API, as the `anthropic` client sees it: whole, streamed, and event by event."""

import json
from collections.abc import Callable
from itertools import groupby
from typing import Any

import anthropic
import pytest
from anthropic.types import Message

from tests.conformance.scripted import weather
from tests.conformance.scripted.weather import CALLING, CITIES

MODEL = "any-name"
TOOLS = [
    {"name": name, "description": "A tool.", "input_schema": schema}
    for name, schema in (("get_weather", weather.WEATHER_SCHEMA), ("get_time", weather.TIME_SCHEMA))
]
QUESTION = [{"role": "user", "content": weather.QUESTION}]
LIMIT = {"model": MODEL, "max_tokens": 1000}
Ask = Callable[..., Message]


def whole(client: anthropic.Anthropic, **fields: Any) -> Message:
    return client.messages.create(**LIMIT, **fields)


def streamed(client: anthropic.Anthropic, **fields: Any) -> Message:
    """What the client itself puts together from the events."""
    with client.messages.stream(**LIMIT, **fields) as stream:
        return stream.get_final_message()


both = pytest.mark.parametrize("ask", [whole, streamed])


def results(message: Message, content: str = weather.RESULT, **fields: Any) -> list[dict[str, Any]]:
    """The message, and a message with a result of each of its calls."""
    calls = [block for block in message.content if block.type == "tool_use"]
    returned = [{"type": "tool_result", "tool_use_id": call.id, "content": content, **fields} for call in calls]
    said = [block.model_dump(exclude_none=True) for block in message.content]
    return [{"role": "assistant", "content": said}, {"role": "user", "content": returned}]


@both
def test_a_turn_calls_tools_and_answers_from_their_results(anthropic_client, salt, ask: Ask):
    calling = ask(anthropic_client, messages=QUESTION, tools=TOOLS, extra_body=salt)
    assert (calling.type, calling.role) == ("message", "assistant")
    assert (calling.stop_reason, calling.stop_sequence) == ("tool_use", None)
    thought, text, *calls = calling.content
    assert (thought.type, thought.thinking) == ("thinking", CALLING.thought)
    assert thought.signature
    assert (text.type, text.text) == ("text", CALLING.text)
    assert [(call.type, call.name, call.input) for call in calls] == [
        ("tool_use", "get_weather", {"city": city, "unit": "celsius"}) for city in CITIES
    ]
    assert len({call.id for call in calls}) == 2
    used = calling.usage
    assert used.output_tokens == weather.completion_tokens("get_weather")
    assert used.output_tokens_details.thinking_tokens == weather.reasoning_tokens()
    assert (used.cache_read_input_tokens, used.cache_creation_input_tokens) == (0, 0)

    conversation = [*QUESTION, *results(calling)]
    answering = ask(anthropic_client, messages=conversation, tools=TOOLS, extra_body=salt)
    assert [block.to_dict() for block in answering.content] == [{"type": "text", "text": weather.ANSWER}]
    assert answering.stop_reason == "end_turn"
    assert answering.usage.output_tokens == weather.completion_tokens("answer")
    # The whole conversation up to the answer's header comes from the cache.
    assert answering.usage.cache_read_input_tokens == used.input_tokens - weather.HEADER_TOKENS
    counted = anthropic_client.messages.count_tokens(model=MODEL, messages=conversation, tools=TOOLS)
    assert counted.input_tokens == answering.usage.input_tokens + answering.usage.cache_read_input_tokens
    assert answering.id != calling.id


@both
def test_a_failed_tool_reaches_the_model(anthropic_client, salt, ask: Ask):
    calling = ask(anthropic_client, messages=QUESTION, tools=TOOLS, extra_body=salt)
    failed = results(calling, weather.WRONG_RESULT, is_error=True)
    doubting = ask(anthropic_client, messages=[*QUESTION, *failed], tools=TOOLS, extra_body=salt)
    assert [block.text for block in doubting.content] == [weather.DOUBT]


@both
def test_a_named_tools_call_stands_alone(anthropic_client, ask: Ask):
    choice = {"type": "tool", "name": "get_time"}
    calling = ask(anthropic_client, messages=QUESTION, tools=TOOLS, tool_choice=choice)
    (call,) = calling.content
    assert (call.type, call.name, call.input) == ("tool_use", "get_time", {})
    assert calling.stop_reason == "tool_use"


@both
def test_only_the_first_call_without_parallel_use(anthropic_client, ask: Ask):
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    calling = ask(anthropic_client, messages=QUESTION, tools=TOOLS, tool_choice=choice)
    assert [block.type for block in calling.content] == ["thinking", "text", "tool_use"]


def test_the_events_of_a_turn(anthropic_client, salt):
    stream = anthropic_client.messages.create(**LIMIT, messages=QUESTION, tools=TOOLS, stream=True, extra_body=salt)
    events = list(stream)
    blocks = [
        [f"start {index} {kind}", *(f"{delta} {index}" for delta in deltas), f"stop {index}"]
        for index, (kind, deltas) in enumerate(
            [
                ("thinking", ["thinking_delta", "signature_delta"]),
                ("text", ["text_delta"]),
                ("tool_use", ["input_json_delta"]),
                ("tool_use", ["input_json_delta"]),
            ]
        )
    ]
    assert [kind for kind, _ in groupby(map(kind_of, events))] == [
        "message_start",
        *(kind for block in blocks for kind in block),
        "message_delta",
        "message_stop",
    ]
    opened = events[0].message
    assert (opened.content, opened.stop_reason, opened.usage.output_tokens) == ([], None, 0)
    deltas = [(event.index, event.delta) for event in events if event.type == "content_block_delta"]
    assert "".join(delta.thinking for _, delta in deltas if delta.type == "thinking_delta") == CALLING.thought
    assert "".join(delta.text for _, delta in deltas if delta.type == "text_delta") == CALLING.text
    for index, city in enumerate(CITIES, start=2):
        spelled = "".join(delta.partial_json for at, delta in deltas if at == index)
        assert json.loads(spelled) == {"city": city, "unit": "celsius"}
    closing = events[-2]
    assert (closing.delta.stop_reason, closing.delta.stop_sequence) == ("tool_use", None)
    assert closing.usage.output_tokens == weather.completion_tokens("get_weather")
    assert closing.usage.input_tokens == opened.usage.input_tokens


def kind_of(event: Any) -> str:
    """The type of an event and the block that it is about."""
    match event.type:
        case "content_block_start":
            return f"start {event.index} {event.content_block.type}"
        case "content_block_delta":
            return f"{event.delta.type} {event.index}"
        case "content_block_stop":
            return f"stop {event.index}"
        case other:
            return other
