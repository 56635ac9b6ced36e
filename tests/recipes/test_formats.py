"""Which parsers templates ask for."""

import pytest

from ignition.export import core_pb2
from ignition.frontend import FrontendAssets, ReasoningParser, ToolParser, with_parsers
from tests.text.renderings import TEMPLATES

PLAIN = "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}"


def parsers(template: str) -> tuple[ToolParser, ReasoningParser]:
    """What is chosen for a template."""
    assets = with_parsers(FrontendAssets(b"", template, "", "", (0,)))
    return assets.tool_parser, assets.reasoning_parser


@pytest.mark.parametrize(
    "ours, contract", [(ToolParser, core_pb2.ToolParser), (ReasoningParser, core_pb2.ReasoningParser)]
)
def test_names_and_values_are_the_contracts(ours, contract):
    stated = {name.split("_PARSER_")[1]: value for name, value in contract.items() if value}
    assert {parser.name: parser.value for parser in ours} == stated


TAUGHT = {
    "deepseek-r1": (ToolParser.DEEPSEEK, ReasoningParser.THINK_TAGS),
    "deepseek-v3": (ToolParser.DEEPSEEK, ReasoningParser.NONE),
    "deepseek-v3.1": (ToolParser.DEEPSEEK, ReasoningParser.THINK_TAGS),
    "falcon3": (ToolParser.HERMES_JSON, ReasoningParser.NONE),
    "glm4.5": (ToolParser.GLM, ReasoningParser.THINK_TAGS),
    "harmony": (ToolParser.HARMONY, ReasoningParser.HARMONY),
    "hermes-tools": (ToolParser.HERMES_JSON, ReasoningParser.NONE),
    "hunyuan": (ToolParser.NONE, ReasoningParser.THINK_TAGS),
    "kimi-k2": (ToolParser.KIMI, ReasoningParser.THINK_TAGS),
    "llama3.1-tools": (ToolParser.LLAMA3_JSON, ReasoningParser.NONE),
    "mistral-tekken": (ToolParser.MISTRAL, ReasoningParser.NONE),
    "mistral-v3-tools": (ToolParser.MISTRAL, ReasoningParser.NONE),
    "nemotron": (ToolParser.NONE, ReasoningParser.THINK_TAGS),
    "qwen2.5": (ToolParser.HERMES_JSON, ReasoningParser.NONE),
    "qwen3": (ToolParser.HERMES_JSON, ReasoningParser.THINK_TAGS),
    "qwen3-coder": (ToolParser.QWEN_XML, ReasoningParser.NONE),
    "qwen3.5": (ToolParser.QWEN_XML, ReasoningParser.THINK_TAGS),
    "smollm3": (ToolParser.HERMES_JSON, ReasoningParser.THINK_TAGS),
}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.stem)
def test_a_familys_template_shows_the_form_that_it_teaches(template):
    assert parsers(template.read_text()) == TAUGHT.get(template.stem, (ToolParser.NONE, ReasoningParser.NONE))


@pytest.mark.parametrize(
    "taught, chosen",
    [
        ("[THINK][/THINK][TOOL_CALLS]", (ToolParser.MISTRAL, ReasoningParser.THINK_BRACKETS)),
        ("content.split('</think>')<｜tool▁calls▁begin｜>", (ToolParser.DEEPSEEK, ReasoningParser.THINK_OPEN)),
        ("<|channel>thought\n<channel|><|tool_call>call:", (ToolParser.GEMMA, ReasoningParser.THOUGHT_CHANNEL)),
        ("<start_function_call>call:", (ToolParser.GEMMA, ReasoningParser.NONE)),
    ],
)
def test_forms_that_no_template_at_hand_has(taught, chosen):
    assert parsers(PLAIN + taught) == chosen
