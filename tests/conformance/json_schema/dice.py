"""A core that throws dice: a tiny model with random weights, a byte-level tokenizer and whatever parsers are asked for.

Nothing draws it to any text, so what its answers have in common comes from their constraints.
"""

from dataclasses import replace
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from ignition.export.corefile import FILE_NAME, write_core_file
from ignition.export.writer import core_parts
from ignition.frontend.assets import FrontendAssets, ReasoningParser, ToolParser
from ignition.preparation.session import RecordedPreparationSession

START, END = "<|im_start|>", "<|im_end|>"
"""Tokens 1 and 2, as the tiny model's configuration has them."""
MARKS = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>"),
    *("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>"),
)
_TEMPLATE = (
    "{%- if tools %}{{ tools | tojson }}{% endif %}"
    "{%- for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}<|im_start|>"
)
_HARMONY_TEMPLATE = _TEMPLATE + "<|start|>assistant"


def write_dice(
    session: RecordedPreparationSession, folder: Path, tools: ToolParser, reasoning: ReasoningParser
) -> Path:
    """The captured model as a core with these parsers."""
    model = session.model
    frontend = FrontendAssets(
        tokenizer=build_tokenizer().to_str().encode(),
        template=_HARMONY_TEMPLATE if tools == ToolParser.HARMONY else _TEMPLATE,
        bos_text="",
        eos_text=END,
        eos_tokens=model.frontend.eos_tokens,
        tool_parser=tools,
        reasoning_parser=reasoning,
    )
    folder.mkdir(parents=True)
    session.model = replace(model, frontend=frontend)
    try:
        write_core_file(folder / FILE_NAME, core_parts(session))
    finally:
        session.model = model
    return folder


def build_tokenizer() -> Tokenizer:
    """One token a byte, and one for each mark."""
    tokens = ["<|pad|>", START, END, *sorted(ByteLevel.alphabet()), *MARKS]
    tokenizer = Tokenizer(BPE({token: index for index, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<|pad|>", START, END, *MARKS)])
    return tokenizer
