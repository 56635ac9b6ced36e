"""A tool-using turn over the responses API, as the `openai` client sees it: whole, streamed, and event by event."""

from collections.abc import Callable
from itertools import groupby
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from tests.conformance.scripted import weather
from tests.conformance.scripted.weather import CALLING, CITIES

MODEL = "scripted"
TOOLS = [
    {"type": "function", "name": name, "description": "A tool.", "parameters": schema, "strict": False}
    for name, schema in (("get_weather", weather.WEATHER_SCHEMA), ("get_time", weather.TIME_SCHEMA))
]
QUESTION = [{"role": "user", "content": weather.QUESTION}]
ARGUMENTS = [f'{{"city": "{city}", "unit": "celsius"}}' for city in CITIES]
Ask = Callable[..., Response]


def whole(client: openai.OpenAI, **fields: Any) -> Response:
    return client.responses.create(model=MODEL, **fields)


def streamed(client: openai.OpenAI, **fields: Any) -> Response:
    """What the client itself puts together from the events."""
    with client.responses.stream(model=MODEL, **fields) as stream:
        return stream.get_final_response()


both = pytest.mark.parametrize("ask", [whole, streamed])


def results(response: Response, output: str = weather.RESULT) -> list[dict[str, Any]]:
    """A result of each of the response's calls."""
    calls = [item for item in response.output if item.type == "function_call"]
    return [{"type": "function_call_output", "call_id": call.call_id, "output": output} for call in calls]


def replayed(response: Response) -> list[dict[str, Any]]:
    """The response's items as input of the next."""
    return [item.model_dump(exclude_none=True) for item in response.output]


def check_calling(response: Response) -> None:
    """A thought, a text and two calls, in this order."""
    thought, message, *calls = response.output
    assert (thought.type, thought.summary) == ("reasoning", [])
    assert [(part.type, part.text) for part in thought.content] == [("reasoning_text", CALLING.thought)]
    assert (message.type, message.role) == ("message", "assistant")
    assert [(part.type, part.text) for part in message.content] == [("output_text", CALLING.text)]
    assert [(call.type, call.name, call.arguments) for call in calls] == [
        ("function_call", "get_weather", arguments) for arguments in ARGUMENTS
    ]
    assert len({call.call_id for call in calls}) == 2
    assert len({item.id for item in response.output}) == 4
    assert {item.status for item in response.output} == {"completed"}
    assert (response.status, response.incomplete_details, response.error) == ("completed", None, None)


@both
def test_a_turn_calls_tools_and_answers_from_their_results(openai_client, salt, ask: Ask):
    calling = ask(openai_client, input=QUESTION, tools=TOOLS, store=False, extra_body=salt)
    check_calling(calling)
    used = calling.usage
    assert used.output_tokens == weather.completion_tokens("get_weather")
    assert used.output_tokens_details.reasoning_tokens == weather.reasoning_tokens()
    assert used.total_tokens == used.input_tokens + used.output_tokens
    assert used.input_tokens_details.cached_tokens == 0

    conversation = [*QUESTION, *replayed(calling), *results(calling)]
    answering = ask(openai_client, input=conversation, tools=TOOLS, store=False, extra_body=salt)
    (message,) = answering.output
    assert (message.type, answering.output_text) == ("message", weather.ANSWER)
    assert answering.usage.output_tokens == weather.completion_tokens("answer")
    assert answering.usage.output_tokens_details.reasoning_tokens == 0
    # The whole conversation up to the answer's header comes from the cache.
    assert answering.usage.input_tokens_details.cached_tokens == used.input_tokens - weather.HEADER_TOKENS
    assert answering.id != calling.id


@both
def test_a_kept_response_is_continued_by_its_id(openai_client, salt, ask: Ask):
    calling = ask(openai_client, input=weather.QUESTION, tools=TOOLS, extra_body=salt)
    continued = {"previous_response_id": calling.id, "tools": TOOLS, "extra_body": salt}
    answering = ask(openai_client, input=results(calling), **continued)
    assert answering.output_text == weather.ANSWER
    assert answering.previous_response_id == calling.id
    cached = answering.usage.input_tokens_details.cached_tokens
    assert cached == calling.usage.input_tokens - weather.HEADER_TOKENS
    doubting = ask(openai_client, input=results(calling, weather.WRONG_RESULT), **continued)
    assert doubting.output_text == weather.DOUBT


@both
def test_a_call_comes_back_with_its_namespace(openai_client, ask: Ask):
    clock = [{"type": "namespace", "name": "clock", "description": "Time.", "tools": [TOOLS[1]]}]
    calling = ask(openai_client, input=QUESTION, tools=clock)
    (call,) = calling.output
    assert (call.name, call.namespace, call.arguments) == ("get_time", "clock", "{}")
    answering = ask(openai_client, input=[*QUESTION, *replayed(calling), *results(calling)], tools=clock)
    assert answering.output_text == weather.ANSWER


def test_the_events_of_a_turn(openai_client, salt):
    stream = openai_client.responses.create(model=MODEL, input=QUESTION, tools=TOOLS, stream=True, extra_body=salt)
    events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [kind for kind, _ in groupby(kind_of(event) for event in events)] == [
        "created",
        "in_progress",
        "output_item.added 0",
        "reasoning_text.delta 0",
        "reasoning_text.done 0",
        "output_item.done 0",
        "output_item.added 1",
        "content_part.added 1",
        "output_text.delta 1",
        "output_text.done 1",
        "content_part.done 1",
        "output_item.done 1",
        *(
            f"{kind} {index}"
            for index in (2, 3)
            for kind in (
                "output_item.added",
                "function_call_arguments.delta",
                "function_call_arguments.done",
                "output_item.done",
            )
        ),
        "completed",
    ]
    final = events[-1].response
    check_calling(final)
    of_items = [event for event in events if hasattr(event, "item_id")]
    assert all(event.item_id == final.output[event.output_index].id for event in of_items)
    assert {event.content_index for event in of_items if hasattr(event, "content_index")} == {0}
    done = [event for event in events if event.type == "response.output_item.done"]
    assert [event.item for event in done] == final.output
    for kind, whole_text in (
        ("reasoning_text", CALLING.thought),
        ("output_text", CALLING.text),
        ("function_call_arguments", "".join(ARGUMENTS)),
    ):
        assert "".join(event.delta for event in events if event.type == f"response.{kind}.delta") == whole_text
    assert [event.name for event in events if event.type.endswith("arguments.done")] == ["get_weather"] * 2
    assert {event.response.id for event in events if hasattr(event, "response")} == {final.id}
    assert events[0].response.output == [] and events[0].response.usage is None


def kind_of(event: Any) -> str:
    """The type of an event and the item that it is about."""
    kind = event.type.removeprefix("response.")
    return f"{kind} {event.output_index}" if hasattr(event, "output_index") else kind
