"""A tool-using turn over chat completions, as the `openai` client sees it: whole, streamed, and event by event."""

from collections.abc import Callable
from itertools import groupby
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.conformance.scripted import weather
from tests.conformance.scripted.weather import CALLING, CITIES

MODEL = "scripted"
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": schema}}
    for name, schema in (("get_weather", weather.WEATHER_SCHEMA), ("get_time", weather.TIME_SCHEMA))
]
QUESTION = [{"role": "user", "content": weather.QUESTION}]
Ask = Callable[..., ChatCompletion]


def whole(client: openai.OpenAI, **fields: Any) -> ChatCompletion:
    return client.chat.completions.create(model=MODEL, **fields)


def streamed(client: openai.OpenAI, **fields: Any) -> ChatCompletion:
    """What the client itself puts together from the chunks."""
    with client.chat.completions.stream(model=MODEL, stream_options={"include_usage": True}, **fields) as stream:
        return stream.get_final_completion()


both = pytest.mark.parametrize("ask", [whole, streamed])


def results(answer: ChatCompletion, content: str = weather.RESULT) -> list[dict[str, Any]]:
    """The answer as a message, and a result of each of its calls."""
    message = answer.choices[0].message
    returned = [{"role": "tool", "tool_call_id": call.id, "content": content} for call in message.tool_calls or []]
    return [message.model_dump(exclude_none=True), *returned]


@both
def test_a_turn_calls_tools_and_answers_from_their_results(openai_client, salt, ask: Ask):
    calling = ask(openai_client, messages=QUESTION, tools=TOOLS, extra_body=salt)
    (choice,) = calling.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "tool_calls", None)
    message = choice.message
    assert (message.role, message.content, message.refusal) == ("assistant", CALLING.text, None)
    assert message.model_extra == {"reasoning_content": CALLING.thought, "reasoning": CALLING.thought}
    assert [(call.type, call.function.name) for call in message.tool_calls] == [("function", "get_weather")] * 2
    spelled = [f'{{"city": "{city}", "unit": "celsius"}}' for city in CITIES]
    assert [call.function.arguments for call in message.tool_calls] == spelled
    assert len({call.id for call in message.tool_calls}) == 2
    used = calling.usage
    assert used.completion_tokens == weather.completion_tokens("get_weather")
    assert used.completion_tokens_details.reasoning_tokens == weather.reasoning_tokens()
    assert used.total_tokens == used.prompt_tokens + used.completion_tokens
    assert used.prompt_tokens_details.cached_tokens == 0

    answering = ask(openai_client, messages=[*QUESTION, *results(calling)], tools=TOOLS, extra_body=salt)
    (choice,) = answering.choices
    assert (choice.message.content, choice.message.tool_calls) == (weather.ANSWER, None)
    assert choice.finish_reason == "stop"
    assert answering.usage.completion_tokens == weather.completion_tokens("answer")
    assert answering.usage.completion_tokens_details.reasoning_tokens == 0
    # The whole conversation up to the answer's header comes from the cache.
    assert answering.usage.prompt_tokens_details.cached_tokens == used.prompt_tokens - weather.HEADER_TOKENS
    assert answering.id != calling.id


@both
def test_a_wrong_result_reaches_the_model(openai_client, salt, ask: Ask):
    calling = ask(openai_client, messages=QUESTION, tools=TOOLS, extra_body=salt)
    messages = [*QUESTION, *results(calling, weather.WRONG_RESULT)]
    doubting = ask(openai_client, messages=messages, tools=TOOLS, extra_body=salt)
    assert doubting.choices[0].message.content == weather.DOUBT


@both
def test_a_call_alone_has_no_content(openai_client, ask: Ask):
    choice = {"type": "function", "function": {"name": "get_time"}}
    calling = ask(openai_client, messages=QUESTION, tools=TOOLS, tool_choice=choice)
    message = calling.choices[0].message
    (call,) = message.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_time", "{}")
    assert calling.choices[0].finish_reason == "tool_calls"
    assert message.content in (None, "")
    assert not message.model_extra


@both
def test_only_the_first_call_without_parallel_calls(openai_client, ask: Ask):
    calling = ask(openai_client, messages=QUESTION, tools=TOOLS, parallel_tool_calls=False)
    assert len(calling.choices[0].message.tool_calls) == 1
    assert calling.choices[0].finish_reason == "tool_calls"


def test_the_chunks_of_a_turn(openai_client, salt):
    stream = openai_client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        tools=TOOLS,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=salt,
    )
    chunks = list(stream)
    assert [kind for kind, _ in groupby(map(kind_of, chunks))] == [
        "role",
        "reasoning",
        "content",
        "call 0",
        "arguments 0",
        "call 1",
        "arguments 1",
        "finish tool_calls",
        "usage",
    ]
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert all(choice.index == 0 for chunk in chunks for choice in chunk.choices)
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == CALLING.text
    assert "".join(delta.model_extra.get("reasoning_content", "") for delta in deltas) == CALLING.thought
    # More than one piece each: nothing waits for the end of an answer.
    assert sum(bool(delta.content) for delta in deltas) > 5
    assert sum("reasoning_content" in delta.model_extra for delta in deltas) > 5


def kind_of(chunk: ChatCompletionChunk) -> str:
    """What a chunk tells, which is one thing."""
    if not chunk.choices:
        assert chunk.usage
        return "usage"
    (choice,) = chunk.choices
    if choice.finish_reason:
        assert choice.delta.model_dump(exclude_none=True) == {}
        return f"finish {choice.finish_reason}"
    if choice.delta.role:
        assert not choice.delta.content
        return "role"
    if not choice.delta.tool_calls:
        return "content" if choice.delta.content else "reasoning"
    (call,) = choice.delta.tool_calls
    if call.function.name is None:
        assert (call.id, call.type) == (None, None)
        return f"arguments {call.index}"
    assert call.id
    assert (call.type, call.function.arguments) == ("function", "")
    return f"call {call.index}"
