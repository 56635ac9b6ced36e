"""Which parsers templates ask for."""

import pytest

from ignition.export import core_pb2
from ignition.frontend import FrontendAssets, ReasoningParser, ToolParser, with_parsers

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


@pytest.mark.parametrize(
    "taught, chosen",
    [
        (PLAIN, (ToolParser.NONE, ReasoningParser.NONE)),
        ('<tool_call>\n{"name": "', (ToolParser.HERMES_JSON, ReasoningParser.NONE)),
        ("<think>\n</think><tool_call>", (ToolParser.HERMES_JSON, ReasoningParser.THINK_TAGS)),
        ("<tool_call>\n<function=", (ToolParser.QWEN_XML, ReasoningParser.NONE)),
        ("<tool_call><arg_key><think></think>", (ToolParser.GLM, ReasoningParser.THINK_TAGS)),
        ("<|python_tag|>", (ToolParser.LLAMA3_JSON, ReasoningParser.NONE)),
        (
            '{"name": function name, "parameters": dictionary of argument name and its value}',
            (ToolParser.LLAMA3_JSON, ReasoningParser.NONE),
        ),
        ("[THINK][/THINK][TOOL_CALLS]", (ToolParser.MISTRAL, ReasoningParser.THINK_BRACKETS)),
        ("content.split('</think>')<｜tool▁calls▁begin｜>", (ToolParser.DEEPSEEK, ReasoningParser.THINK_OPEN)),
        ("<|tool_calls_section_begin|>", (ToolParser.KIMI, ReasoningParser.NONE)),
        ("<|channel>thought\n<channel|><|tool_call>call:", (ToolParser.GEMMA, ReasoningParser.THOUGHT_CHANNEL)),
        ("<|start|>assistant<|channel|>", (ToolParser.HARMONY, ReasoningParser.HARMONY)),
    ],
)
def test_a_template_shows_the_form_that_it_teaches(taught, chosen):
    assert parsers(PLAIN + taught) == chosen
