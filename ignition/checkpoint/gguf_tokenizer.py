"""A GGUF file's vocabulary as a tokenizer.json.

The file states tokens, merges and a name for how text is split before merging; the splits below are those
that the models' own tokenizer.json files have. A split that is not in the table is refused: a wrong one still
decodes well and makes the model quietly worse.
"""

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from ignition.errors import CheckpointError, UnsupportedModelError
from ignition.frontend.assets import FrontendAssets

CONTROL, USER_DEFINED = 3, 4
"""`tokenizer.ggml.token_type` values: never in plain text, and matched whole in plain text."""

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

IGNORE_MERGES = {"llama-bpe", "tekken"}
"""Vocabularies in which a piece that is a token is taken whole, before any merge."""


def frontend_assets(metadata: Mapping[str, Any]) -> FrontendAssets:
    """The frontend that the metadata states. Raises `UnsupportedModelError` or `CheckpointError`."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not tokens:
        raise CheckpointError("the GGUF file has no vocabulary (tokenizer.ggml.tokens); convert it with one")
    ends = [metadata[f"tokenizer.ggml.{key}"] for key in ("eos_token_id", "eot_token_id") if known(metadata, key)]
    if not ends:
        raise CheckpointError("the GGUF file names no end-of-turn token (tokenizer.ggml.eos_token_id)")
    bos = tokens[metadata["tokenizer.ggml.bos_token_id"]] if known(metadata, "bos_token_id") else ""
    return FrontendAssets(
        tokenizer=build_tokenizer(metadata, tokens, bos).to_str().encode(),
        template=metadata.get("tokenizer.chat_template", ""),
        bos_text=bos,
        eos_text=tokens[ends[0]],
        eos_tokens=tuple(dict.fromkeys(ends)),
    )


def known(metadata: Mapping[str, Any], key: str) -> bool:
    """Whether a token id is stated and inside the vocabulary."""
    return bool(0 <= metadata.get(f"tokenizer.ggml.{key}", -1) < len(metadata["tokenizer.ggml.tokens"]))


def build_tokenizer(metadata: Mapping[str, Any], tokens: list[str], bos: str) -> Tokenizer:
    """A byte-level BPE tokenizer of the file's tokens, merges and split."""
    kind, split = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2":
        raise UnsupportedModelError(
            f"the GGUF file's tokenizer is of kind {kind!r}, not byte-level BPE; prepare the safetensors checkpoint, "
            f"whose folder has a tokenizer.json"
        )
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise CheckpointError("the GGUF file's vocabulary names a token twice")
    merges = [tuple(merge.split(" ", 1)) for merge in metadata.get("tokenizer.ggml.merges", ())]
    tokenizer = Tokenizer(BPE(vocabulary, merges, ignore_merges=split in IGNORE_MERGES))
    tokenizer.pre_tokenizer = pre_tokenizer(split)
    tokenizer.decoder = decoders.ByteLevel()
    if split == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    add_whole_tokens(tokenizer, tokens, metadata.get("tokenizer.ggml.token_type", ()))
    if metadata.get("tokenizer.ggml.add_bos_token") and bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, vocabulary[bos])]
        )
    return tokenizer


def pre_tokenizer(split: str) -> pre_tokenizers.PreTokenizer:
    """The split of a `tokenizer.ggml.pre` name."""
    if split == "smollm":
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    if split == "gpt-2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    patterns = {"llama-bpe": LLAMA3, "qwen2": QWEN2, "tekken": TEKKEN}
    if split not in patterns:
        raise UnsupportedModelError(
            f"the GGUF file splits text as {split!r}, which is not known here; prepare the safetensors checkpoint, "
            f"whose folder has a tokenizer.json"
        )
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(patterns[split]), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def add_whole_tokens(tokenizer: Tokenizer, tokens: list[str], types: list[int]) -> None:
    """Mark the tokens that are never cut into pieces; control tokens are special and leave the decoded text."""
    by_type = {
        wanted: [token for token, kind in zip(tokens, types, strict=False) if kind == wanted]
        for wanted in (CONTROL, USER_DEFINED)
    }
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in by_type[CONTROL]])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in by_type[USER_DEFINED]])
