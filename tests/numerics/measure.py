"""The numerics evidence: a core's logits, Transformers' bf16 logits and exact ones over a set of prompts."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from ignition.checkpoint import Checkpoint
from tests.numerics.reference import Distance, canonical_model, distance, teacher_forced
from tests.numerics.replay import Replay, follow

PROMPTS = Path(__file__).with_name("prompts.json")
DECODE_STEPS = 64


@dataclass(frozen=True)
class Summary:
    """One engine against the exact logits, over all positions of all prompts."""

    positions: int
    median_kl: float
    mean_kl: float
    top1_agreement: float

    @classmethod
    def of(cls, distances: Sequence[Distance]) -> "Summary":
        """Positions of all prompts together."""
        kl, agrees = torch.cat([d.kl for d in distances]), torch.cat([d.agrees for d in distances])
        return cls(len(kl), float(kl.median()), float(kl.mean()), float(agrees.double().mean()))


@dataclass(frozen=True)
class Evidence:
    """The core and Transformers' bf16 against float64, and the core against Transformers' bf16."""

    flare: Summary
    transformers: Summary
    flare_to_transformers: Summary


def encode_prompts(checkpoint: Checkpoint, limit: int | None = None) -> list[list[int]]:
    """The kept prompts as token ids: chats are rendered as ChatML, the rest is plain text."""
    tokenizer = Tokenizer.from_buffer(checkpoint.frontend.tokenizer)
    encoded = []
    for prompt in json.loads(PROMPTS.read_text())[:limit]:
        text = prompt["text"]
        if prompt["kind"] == "chat":
            text = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        encoded.append(tokenizer.encode(text).ids)
    return encoded


def measure(
    core: Path, checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], *, advance: Callable[[], None] = lambda: None
) -> Evidence:
    """Follow each prompt for 64 greedy steps on the core, and put the same text through the references."""
    replay = Replay(core)
    try:
        runs = [follow(replay, prompt, DECODE_STEPS, banned=checkpoint.frontend.eos_tokens) for prompt in prompts]
    finally:
        replay.close()
    eager = canonical_model(checkpoint, torch.bfloat16)
    exact = canonical_model(checkpoint, torch.float64)
    ours, theirs, between = [], [], []
    for prompt, (tokens, logits) in zip(prompts, runs, strict=True):
        reference, bf16 = teacher_forced(exact, prompt, tokens), teacher_forced(eager, prompt, tokens)
        ours.append(distance(reference, logits))
        theirs.append(distance(reference, bf16))
        between.append(distance(bf16, logits))
        advance()
    return Evidence(Summary.of(ours), Summary.of(theirs), Summary.of(between))
