"""Transformers on the same weights, in bf16 and in float64: what a core's logits are measured against."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ignition.checkpoint import Checkpoint


def canonical_model(checkpoint: Checkpoint, dtype: torch.dtype) -> LlamaForCausalLM:
    """The canonical eager model on a checkpoint's bf16 values.

    In float64 the canonical code still computes norms, softmax and rotary angles in float32: its error is 2^-24,
    against 2^-8 of bf16.
    """
    with torch.device("meta"):
        model = LlamaForCausalLM._from_config(
            LlamaConfig(**checkpoint.config), dtype=dtype, attn_implementation="eager"
        )
    values = {name: checkpoint.read_rows(name, 0, info.rows).to(dtype) for name, info in checkpoint.tensors.items()}
    if model.config.tie_word_embeddings:
        values["lm_head.weight"] = values["model.embed_tokens.weight"]
    model.load_state_dict(values, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config=model.config)
    return model.eval()


def teacher_forced(model: LlamaForCausalLM, prompt: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
    """Logits f64[1 + len(tokens), V] at the prompt's end and after each token."""
    text = torch.tensor([[*prompt, *tokens]])
    with torch.no_grad():
        logits = model(text, use_cache=False, logits_to_keep=len(tokens) + 1).logits[0]
    return logits.double()


@dataclass(frozen=True)
class Distance:
    """How far logits are from the exact ones, by position."""

    kl: torch.Tensor  # KL(exact || measured), nats.
    agrees: torch.Tensor  # Whether the most likely token is the same.


def distance(exact: torch.Tensor, measured: torch.Tensor) -> Distance:
    """Compare logits [positions, V]."""
    reference, other = exact.log_softmax(-1), measured.double().log_softmax(-1)
    kl = (reference.exp() * (reference - other)).sum(-1)
    return Distance(kl, exact.argmax(-1) == measured.argmax(-1))
