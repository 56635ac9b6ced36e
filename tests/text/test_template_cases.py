"""The chat-template cases that Helios is held to are what Transformers renders."""

import json
from pathlib import Path
from typing import Any

import pytest
from jinja2.exceptions import TemplateError
from transformers.utils.chat_template_utils import _compile_jinja_template

CASES = json.loads((Path(__file__).parents[2] / "helios/src/text/template_cases.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["template"])
def test_case_is_what_transformers_renders(case: dict[str, Any]) -> None:
    variables = {"messages": [], "tools": None, "documents": None, "add_generation_prompt": True}
    template = _compile_jinja_template(case["template"])
    if case["text"] is None:
        with pytest.raises((TemplateError, TypeError, ValueError)):
            template.render(**variables, x=case["x"])
    else:
        assert template.render(**variables, x=case["x"]) == case["text"]
