"""What a scripted model says, and when: its scripts, and the chat template that chooses one by the conversation."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).with_name("template.jinja")


@dataclass(frozen=True)
class Script:
    """One answer as its parts."""

    text: str = ""
    thought: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Names and arguments."""

    def spelled(self) -> str:
        """The answer in the form that the template teaches: think tags, text, and calls as tagged JSON."""
        thought = f"<think>\n{self.thought}\n</think>\n\n" if self.thought else ""
        calls = (
            json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) for name, arguments in self.calls
        )
        return thought + self.text + "".join(f"\n<tool_call>\n{call}\n</tool_call>" for call in calls)


@dataclass(frozen=True)
class Play:
    """All that a model says."""

    calls: Mapping[str, Script]
    """Said where a tool of that name is offered and has not answered yet. The first tool with a script counts."""
    evidence: str
    """What tools' results have to hold."""
    answer: Script
    """Said when they do."""
    doubt: Script = Script("That is not what I asked the tool for.")
    """Said when they do not."""
    greeting: Script = Script("Hello.")
    """Said where no tool has a script."""

    def scripts(self) -> dict[str, Script]:
        """Every script by the name that the template calls it."""
        return {**self.calls, "answer": self.answer, "doubt": self.doubt, "greeting": self.greeting}

    def template(self) -> str:
        """The chat template."""
        settings = {"scripts": list(self.calls), "evidence": self.evidence}
        lines = [f"{{%- set {name} = {json.dumps(value)} %}}\n" for name, value in settings.items()]
        return "".join(lines) + TEMPLATE.read_text()
