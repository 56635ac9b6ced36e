"""The frontend's assets as typed values, and how a checkpoint folder states them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from ignition.errors import CheckpointError


class ToolParser(Enum):
    """How tool calls are read out of a model's text. Names and values are the contract's, which shows each form."""

    NONE = 1
    HERMES_JSON = 2
    QWEN_XML = 3
    LLAMA3_JSON = 4
    MISTRAL = 5
    GLM = 6
    DEEPSEEK = 7
    KIMI = 8
    GEMMA = 9
    HARMONY = 10


class ReasoningParser(Enum):
    """How reasoning is told from the answer. Names and values are the contract's, which shows each form."""

    NONE = 1
    THINK_TAGS = 2
    THINK_OPEN = 3
    THINK_BRACKETS = 4
    THOUGHT_CHANNEL = 5
    HARMONY = 6


@dataclass(frozen=True)
class FrontendAssets:
    """Everything that Helios needs for text, with no configuration file among it."""

    tokenizer: bytes  # tokenizer.json
    template: str  # Jinja chat template, empty where the checkpoint has none.
    bos_text: str  # The template's bos_token, empty for none.
    eos_text: str  # The template's eos_token.
    eos_tokens: tuple[int, ...]
    tool_parser: ToolParser = ToolParser.NONE
    reasoning_parser: ReasoningParser = ReasoningParser.NONE

    @classmethod
    def from_folder(cls, path: Path, config: Mapping[str, Any]) -> "FrontendAssets":
        """The assets of a Hugging Face folder. Raises `CheckpointError` for a missing or malformed one."""
        if not (path / "tokenizer.json").is_file():
            raise CheckpointError(
                f"{path} has no tokenizer.json; save one with "
                f"AutoTokenizer.from_pretrained(...).save_pretrained({str(path)!r})"
            )
        content = (path / "tokenizer.json").read_bytes()
        tokenizer = checked_tokenizer(content, path)
        settings = read_settings(path / "tokenizer_config.json")
        eos_text = token_text(settings.get("eos_token"))
        return cls(
            tokenizer=content,
            template=read_template(path, settings),
            bos_text=token_text(settings.get("bos_token")),
            eos_text=eos_text,
            eos_tokens=eos_tokens(path, config, tokenizer, eos_text),
        )


def checked_tokenizer(content: bytes, path: Path) -> Tokenizer:
    """tokenizer.json, parsed as the serving process will parse it."""
    try:
        return Tokenizer.from_buffer(content)
    except Exception as error:  # noqa: BLE001 - the tokenizers binding raises bare Exception.
        raise CheckpointError(f"{path / 'tokenizer.json'} cannot be read as a tokenizer: {error}") from error


def read_settings(path: Path) -> dict[str, Any]:
    """An optional JSON object."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return value


def token_text(token: Any) -> str:
    """A token as tokenizer_config.json states one: a text, an added-token object, or nothing."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")


def read_template(path: Path, settings: Mapping[str, Any]) -> str:
    """The chat template: chat_template.jinja wins over tokenizer_config.json, a list's "default" over its
    others.
    """
    if (path / "chat_template.jinja").is_file():
        return (path / "chat_template.jinja").read_text(encoding="utf-8")
    template = settings.get("chat_template") or ""
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template", "") for entry in template if isinstance(entry, dict)}
        template = named.get("default", "")
    return str(template)


def eos_tokens(path: Path, config: Mapping[str, Any], tokenizer: Tokenizer, eos_text: str) -> tuple[int, ...]:
    """The ids that end a turn: generation_config.json's list, else the configuration's, and the tokenizer's
    own.

    Which tokens end a turn is structure, unlike sampling defaults, which a recipe declares.
    """
    stated = read_settings(path / "generation_config.json").get("eos_token_id", config.get("eos_token_id"))
    ids = [stated] if isinstance(stated, int) else list(stated or [])
    own = tokenizer.token_to_id(eos_text) if eos_text else None
    if own is not None and own not in ids:
        ids.append(own)
    if not ids or not all(isinstance(token, int) and token >= 0 for token in ids):
        raise CheckpointError(f"{path} names no end-of-turn token: config.json needs an eos_token_id")
    return tuple(ids)
