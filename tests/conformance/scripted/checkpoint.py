"""A checkpoint that says written scripts: its weights are a table from each token to the one that follows it.

A script is cut into pieces that occur nowhere else, one token each. The residual stream holds which token was read, as
a one-hot vector that no layer adds to, and the vocabulary projection leads from a piece to the next one, by so much
that sampling cannot miss it. The prompt chooses a script by the special token that it ends with, its cue. Whatever
else is read leads to the end token.

To everything that prepares and serves it, it is an ordinary checkpoint with an ordinary template.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import MistralConfig, MistralForCausalLM

from scripts.smollm2 import ROOT
from tests.conformance.scripted.play import Play, Script

START, END = "<|im_start|>", "<|im_end|>"
SPELLING = ByteLevel(add_prefix_space=False, use_regex=False)
HIDDEN_MULTIPLE = PAGE_TOKENS = 64
PIECE_BYTES = 3
"""Short enough to cut through tags, arguments and characters."""
LOGIT = 100.0
"""Of the token that follows; all others have 0."""


def prepare_scripted(folder: Path, play: Play, *, context_tokens: int) -> Path:
    """The core of a play, prepared as any checkpoint is.

    Raises `subprocess.CalledProcessError` when preparation fails.
    """
    checkpoint, core = save_scripted(folder / "scripted", play, context_tokens=context_tokens), folder / "core"
    command = [sys.executable, "-m", "ignition", "prepare", checkpoint, "-o", core, "--device", "host"]
    subprocess.run(command, cwd=ROOT, check=True)
    return core


def save_scripted(folder: Path, play: Play, *, context_tokens: int) -> Path:
    """The checkpoint of a play."""
    scripts = cut_scripts(play.scripts())
    tokenizer = build_tokenizer(scripts)
    chains = [[tokenizer.token_to_id(token) for token in (cue(name), *pieces, END)] for name, pieces in scripts.items()]
    build_model(chains, tokenizer, context_tokens).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    (folder / "chat_template.jinja").write_text(play.template())
    return folder


def cue(script: str) -> str:
    """The special token that a script follows."""
    return f"<|{script}|>"


def cut_scripts(scripts: Mapping[str, Script]) -> dict[str, list[str]]:
    """Each script's pieces, in the alphabet of byte-level tokens. No piece occurs twice in all of them."""
    used: set[str] = set()

    def cut(text: str) -> list[str]:
        ((letters, _),) = SPELLING.pre_tokenize_str(text)
        pieces: list[str] = []
        piece = ""
        for letter in letters:
            piece += letter
            if len(piece) >= PIECE_BYTES and piece not in used:
                pieces.append(piece)
                used.add(piece)
                piece = ""
        # What is left may be short or occur elsewhere, and its neighbours make it longer.
        while piece and (len(piece) < PIECE_BYTES or piece in used):
            piece = pieces.pop() + piece
        used.add(piece)
        return [*pieces, piece] if piece else pieces

    return {name: cut(script.spelled()) for name, script in scripts.items()}


def build_tokenizer(scripts: Mapping[str, list[str]]) -> Tokenizer:
    """Text is read byte by byte: there are no merges that would lead to a piece, so only the model writes pieces."""
    tokens = [*sorted(ByteLevel.alphabet()), *(piece for pieces in scripts.values() for piece in pieces)]
    tokenizer = Tokenizer(BPE({token: index for index, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = SPELLING
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in (START, END, *map(cue, scripts))])
    return tokenizer


def build_model(chains: Sequence[Sequence[int]], tokenizer: Tokenizer, context_tokens: int) -> MistralForCausalLM:
    """The model in which each token of a chain leads to its next one, and any other token to the end."""
    end = tokenizer.token_to_id(END)
    steps = [step for chain in chains for step in pairwise(chain)]
    hidden = -(-(len(steps) + 1) // HIDDEN_MULTIPLE) * HIDDEN_MULTIPLE
    config = MistralConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=hidden,
        intermediate_size=HIDDEN_MULTIPLE,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=context_tokens,
        sliding_window=PAGE_TOKENS,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=None,
    )
    model = MistralForCausalLM(config)
    read, write = model.model.embed_tokens.weight, model.lm_head.weight
    # The final norm scales a one-hot vector to the length sqrt(hidden).
    weight = LOGIT / hidden**0.5
    with torch.no_grad():
        for parameter in model.model.layers.parameters():
            parameter.zero_()
        read.zero_()
        write.zero_()
        read[:, 0] = 1
        write[end, 0] = weight
        for state, (token, following) in enumerate(steps, start=1):
            read[token, 0] = 0
            read[token, state] = 1
            write[following, state] = weight
    return model.to(torch.bfloat16)
