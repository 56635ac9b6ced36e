"""Which parsers read a model's output: the form in which its chat template renders past calls and reasoning.

An architecture does not say, for fine-tunes bring their own templates. A template without a known mark has no parser,
and its model's output is text throughout.
"""

from dataclasses import replace

from ignition.frontend.assets import FrontendAssets, ReasoningParser, ToolParser

TOOL_MARKS = (
    ("<|channel|>", ToolParser.HARMONY),
    ("<|tool_calls_section_begin|>", ToolParser.KIMI),
    ("<｜tool▁calls▁begin｜>", ToolParser.DEEPSEEK),
    ("[TOOL_CALLS]", ToolParser.MISTRAL),
    ("<|tool_call>call:", ToolParser.GEMMA),
    ("<start_function_call>call:", ToolParser.GEMMA),
    ("<arg_key>", ToolParser.GLM),
    ("<function=", ToolParser.QWEN_XML),
    ("<tool_call>", ToolParser.HERMES_JSON),
    ("<|python_tag|>", ToolParser.LLAMA3_JSON),
    ('"parameters": dictionary of argument name', ToolParser.LLAMA3_JSON),
)
"""A template's marks and what they say. The first that is in it counts: <tool_call> stands around several forms."""

REASONING_MARKS = (
    ("<|channel|>", ReasoningParser.HARMONY),
    ("<|channel>thought", ReasoningParser.THOUGHT_CHANNEL),
    ("[THINK]", ReasoningParser.THINK_BRACKETS),
    ("<think>", ReasoningParser.THINK_TAGS),
    # A template that only cuts reasoning off: its models open with it and need not write the tag.
    ("</think>", ReasoningParser.THINK_OPEN),
)


def with_parsers(assets: FrontendAssets) -> FrontendAssets:
    """The assets with the parsers that their template asks for."""
    template = assets.template
    return replace(
        assets,
        tool_parser=next((parser for mark, parser in TOOL_MARKS if mark in template), ToolParser.NONE),
        reasoning_parser=next((parser for mark, parser in REASONING_MARKS if mark in template), ReasoningParser.NONE),
    )
