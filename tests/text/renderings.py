"""What Transformers renders of every template and conversation here.

As a script it writes the files that Helios is held to. Each template is rendered as `apply_chat_template`
renders it, but for the date: `strftime_now` shows its format instead.
"""

import json
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError
from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = Path(__file__).parent
TEMPLATES = sorted((HERE / "templates").glob("*.jinja"))
CORPUS: dict[str, Any] = json.loads((HERE / "conversations.json").read_text())


def renderings_path(template: Path) -> Path:
    """Where a template's renderings are kept."""
    return HERE / "renderings" / f"{template.stem}.json"


def render_all(source: str) -> dict[str, str | None]:
    """Renders every conversation; None where the template refuses it or fails."""
    template = _compile_jinja_template(source)
    return {name: _render(template, conversation) for name, conversation in CORPUS["conversations"].items()}


def _render(template: Any, conversation: dict[str, Any]) -> str | None:
    try:
        text: str = template.render(
            **conversation.get("variables", {}),
            messages=conversation["messages"],
            tools=CORPUS["tools"] if conversation.get("tools") else None,
            documents=None,
            add_generation_prompt=conversation["add_generation_prompt"],
            bos_token="<s>",
            eos_token="</s>",
            strftime_now=lambda date_format: f"[{date_format}]",
        )
    except (TemplateError, TypeError, AttributeError):
        return None
    return text


if __name__ == "__main__":
    for template in TEMPLATES:
        content = json.dumps(render_all(template.read_text()), ensure_ascii=False, indent=1)
        # Editors take these for ends of lines, and JSON does not need them.
        content = content.replace("\u2028", "\\u2028")
        renderings_path(template).write_text(content + "\n")
