"""Which parsers read a model's output: the form in which its chat template renders past calls and reasoning.

An architecture does not say, for fine-tunes bring their own templates. A template without a known mark has no parser,
and its model's output is text throughout.
"""

from dataclasses import replace

from ignition.frontend.assets import FrontendAssets, ReasoningParser, ToolParser

TOOL_MARKS: tuple[tuple[tuple[str, ...], ToolParser], ...] = (
    (("<|start|>", "<|channel|>"), ToolParser.HARMONY),
    (("<|tool_calls_section_begin|>",), ToolParser.KIMI),
    (("<｜tool▁calls▁begin｜>",), ToolParser.DEEPSEEK),
    (("[TOOL_CALLS]",), ToolParser.MISTRAL),
    (("<|tool_call>call:",), ToolParser.GEMMA),
    (("<start_function_call>call:",), ToolParser.GEMMA),
    (("<tool_call>", "<arg_key>"), ToolParser.GLM),
    (("<tool_call>", "<function="), ToolParser.QWEN_XML),
    (("<tool_call>",), ToolParser.HERMES_JSON),
    (('{"name": "', '"parameters": '), ToolParser.LLAMA3_JSON),
)
"""What a template holds, all of it, and what that says. The first that fits counts."""

REASONING_MARKS: tuple[tuple[tuple[str, ...], ReasoningParser], ...] = (
    (("<|start|>", "<|channel|>"), ReasoningParser.HARMONY),
    (("<|channel>thought",), ReasoningParser.THOUGHT_CHANNEL),
    (("[THINK]",), ReasoningParser.THINK_BRACKETS),
    (("<think>",), ReasoningParser.THINK_TAGS),
    # A template that only cuts reasoning off: its models begin with it and need not write the tag.
    (("</think>",), ReasoningParser.THINK_OPEN),
)


def with_parsers(assets: FrontendAssets) -> FrontendAssets:
    """The assets with the parsers that their template asks for."""

    def holds(marks: tuple[str, ...]) -> bool:
        return all(mark in assets.template for mark in marks)

    return replace(
        assets,
        tool_parser=next((parser for marks, parser in TOOL_MARKS if holds(marks)), ToolParser.NONE),
        reasoning_parser=next((parser for marks, parser in REASONING_MARKS if holds(marks)), ReasoningParser.NONE),
    )
