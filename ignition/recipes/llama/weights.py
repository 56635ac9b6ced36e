"""Tensors that checkpoints of these families hold and the model does not need, each with its reason."""

import re
from collections.abc import Mapping

import torch

from ignition.checkpoint import Checkpoint
from ignition.errors import UnsupportedModelError

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
COMPARED_ROWS = 4096


def ignored_tensors(checkpoint: Checkpoint) -> Mapping[str, str]:
    """Name to reason. Raises `UnsupportedModelError` for a head that is declared tied and is not."""
    reasons = {
        name: "ignored because the rotary frequencies are computed from the configuration"
        for name in checkpoint.tensors
        if re.fullmatch(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq", name)
    }
    if checkpoint.config.get("tie_word_embeddings", tied_by_default(checkpoint)) and HEAD in checkpoint.tensors:
        check_tied(checkpoint)
        reasons[HEAD] = "ignored because the head is tied to the embedding, whose values it repeats"
    return reasons


def tied_by_default(checkpoint: Checkpoint) -> bool:
    """What a configuration that does not say means: SmolLM3's class ties, the others do not."""
    return "SmolLM3ForCausalLM" in checkpoint.config["architectures"]


def check_tied(checkpoint: Checkpoint) -> None:
    """A stored head must repeat the embedding, or the model would lose it."""
    head, embedding = checkpoint.tensors[HEAD], checkpoint.tensors.get(EMBEDDING)
    same = embedding is not None and head.shape == embedding.shape
    for first in range(0, head.rows if same else 0, COMPARED_ROWS):
        count = min(COMPARED_ROWS, head.rows - first)
        rows = (checkpoint.read_rows(name, first, count) for name in (HEAD, EMBEDDING))
        same = same and torch.equal(*rows)
    if not same:
        raise UnsupportedModelError(
            f"the configuration ties the head to the embedding, but the checkpoint holds a {HEAD} that differs from "
            f"it; set tie_word_embeddings to false in config.json if the head is meant to be used"
        )
