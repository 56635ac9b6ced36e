"""The play of the protocol tests: a question for the weather, two calls at once, their results, an answer."""

from itertools import accumulate

from tests.conformance.scripted.checkpoint import cut_scripts
from tests.conformance.scripted.play import Play, Script

QUESTION = "How warm is it in Paris and in Zürich?"
CITIES = ["Paris", "Zürich"]
RESULT = "17 °C"
WRONG_RESULT = "no such city"

WEATHER = Play(
    calls={
        "get_weather": Script(
            text="I will ask for both – at once. ☀️",
            thought="Two cities,\nso two calls.",
            calls=tuple(("get_weather", {"city": city, "unit": "celsius"}) for city in CITIES),
        ),
        "get_time": Script(calls=(("get_time", {}),)),
        "clock__get_time": Script(calls=(("clock__get_time", {}),)),
    },
    evidence=RESULT,
    answer=Script("In both cities it is 17 °C. 🌤"),
)
CALLING = WEATHER.calls["get_weather"]
ANSWER, DOUBT, GREETING = WEATHER.answer.text, WEATHER.doubt.text, WEATHER.greeting.text

WEATHER_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "kelvin"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TIME_SCHEMA = {"type": "object", "properties": {}}

HEADER_TOKENS = len("assistant\n") + 2
"""What opens an answer, and is not in the next turn's prompt: a start token, the role byte by byte, a cue."""


def completion_tokens(script: str) -> int:
    """What the model generates for a script, the end token included."""
    return len(cut_scripts(WEATHER.scripts())[script]) + 1


def reasoning_tokens() -> int:
    """Those of the calls' script that its thought takes, its opening tag included."""
    lengths = map(len, cut_scripts(WEATHER.scripts())["get_weather"])
    thought_bytes = len(f"<think>\n{CALLING.thought}".encode())
    return next(count for count, end in enumerate(accumulate(lengths), start=1) if end >= thought_bytes)
