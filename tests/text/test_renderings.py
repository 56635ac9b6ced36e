"""The renderings that Helios is held to are what Transformers renders of every template and conversation."""

import json
from pathlib import Path

import pytest

from tests.text.renderings import TEMPLATES, render_all, renderings_path


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.stem)
def test_renderings_are_what_transformers_renders(template: Path) -> None:
    assert json.loads(renderings_path(template).read_text()) == render_all(template.read_text())


def test_every_rendering_has_its_template() -> None:
    assert len(TEMPLATES) >= 30
    kept = set(renderings_path(TEMPLATES[0]).parent.iterdir())
    assert kept == {renderings_path(template) for template in TEMPLATES}
