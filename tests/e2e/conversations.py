"""Twenty recorded agent conversations, as the steps that a client takes through each.

A conversation is a tree of steps. A step appends messages to the history and reply of the step that it follows, and
asks for a reply; the replies themselves are the server's. The main line has eight turns or more; after it the last turn
is edited, asked once more as it was, and two branches leave from earlier turns. All is derived from seeds.
"""

import dataclasses
import os
import random

from tests.e2e import tool_results

Message = dict[str, str]

COUNT = 20
SMOKE_COUNT = 4
BRANCH_TURNS = 2
# One conversation in this many has a result of about LONG_LINES lines, some 900 tokens.
LONG_EVERY = 5
LONG_LINES = 32

_SYSTEMS = (
    "You are a careful agent. Use the tools `read`, `run` and `search`; answer in one short sentence.",
    "You repair software. Tools: read(path), run(command), search(text). Say what you do next, briefly.",
    "Du bist ein sorgfältiger Assistent. Werkzeuge: lesen, ausführen, suchen. 簡潔に答えてください。",
)
_TASKS = (
    "Find out why the tests of the parser fail, and repair it.",
    "Summarize what the service logged last night — only what matters.",
    "Translate the messages of the catalogue: naïve → naiv, 東京 → Tokio.",
    "Move `ledger.index` to the new schema without losing rows.",
    "Which of these jobs is slow, and since when?",
)
_ORDERS = (
    "Go on.",
    "Is that all? Look at the next file.",
    "Wait — check the second line again, please.",
    "Good. Was noch? 次は？",
    "Write the fix, and nothing else:\n```python\n",
)


@dataclasses.dataclass(frozen=True)
class Step:
    """One request: what it appends to which earlier step (none: it starts the conversation), and how it samples."""

    name: str
    follows: int | None
    messages: tuple[Message, ...]
    output_tokens: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Conversation:
    name: str
    steps: tuple[Step, ...]
    main_turns: int

    def main_line(self, turns: int) -> "Conversation":
        """Its first turns alone."""
        return dataclasses.replace(self, steps=self.steps[:turns], main_turns=turns)


def is_full() -> bool:
    """Whether the long forms of the tests are asked for."""
    return bool(os.environ.get("FLARE_TEST_FULL"))


def selected() -> list[Conversation]:
    """The smoke set, or all when FLARE_TEST_FULL is set."""
    count = COUNT if is_full() else SMOKE_COUNT
    return [conversation(number) for number in range(count)]


def conversation(number: int) -> Conversation:
    """The conversation of a number; the smoke set's are shorter."""
    draw = random.Random(1000 + number)
    is_smoke = number < SMOKE_COUNT
    turns = 8 if is_smoke else draw.randrange(8, 11)
    long_turn = turns - 2 if number % LONG_EVERY == LONG_EVERY - 1 else None
    steps = []

    def add(name: str, follows: int | None, messages: list[Message]) -> None:
        output_tokens = 12 if is_smoke else draw.randrange(12, 25)
        steps.append(Step(name, follows, tuple(messages), output_tokens, seed=draw.randrange(1 << 31)))

    add("turn 1", None, [_message("system", _system(number)), _message("user", draw.choice(_TASKS))])
    for turn in range(1, turns):
        lines = LONG_LINES if turn == long_turn else 1 if is_smoke else draw.choice([1, 2, 3, 5, 8])
        add(f"turn {turn + 1}", turn - 1, _appended(draw, lines))
    last = turns - 1
    add("last turn edited", last - 1, [*_appended(draw, 1), _message("user", draw.choice(_ORDERS))])
    add("last turn asked again", last - 1, list(steps[last].messages))
    for branch, leaves_after in enumerate(draw.sample(range(1, last - 1), 2), start=1):
        follows = leaves_after
        for turn in range(1, BRANCH_TURNS + 1):
            add(f"branch {branch} turn {turn}", follows, _appended(draw, 1))
            follows = len(steps) - 1
    return Conversation(f"conversation {number}", tuple(steps), turns)


def _system(number: int) -> str:
    """Neighbours in the smoke set share their first message."""
    return _SYSTEMS[number // 2 % len(_SYSTEMS)]


def _appended(draw: random.Random, lines: int) -> list[Message]:
    """A tool's result, and every third time a word of the user."""
    messages = [_message("tool", draw.choice(tool_results.KINDS)(draw, lines))]
    if draw.randrange(3) == 0:
        messages.append(_message("user", draw.choice(_ORDERS)))
    return messages


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
