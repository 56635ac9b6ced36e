"""Builds the canonical model on the meta device and puts components in place of its weighted modules."""

from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import (
    LlamaForCausalLM,
    MistralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
    SmolLM3ForCausalLM,
)

from ignition.checkpoint import Checkpoint
from ignition.components.embedding import Embedding
from ignition.components.linear import Linear
from ignition.components.rotary import SharedRotary
from ignition.components.trunk import Trunk
from ignition.components.vocabulary import Vocabulary
from ignition.errors import UnsupportedModelError
from ignition.frontend import with_parsers
from ignition.preparation.model import ModelGeometry, PreparedModel
from ignition.recipes.llama.sampling import sampling_defaults

ARCHITECTURES: dict[str, type[PreTrainedModel]] = {
    model.__name__: model
    for model in (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, SmolLM3ForCausalLM)
}

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose frequencies do not depend on the length of the sequence."""


HEAD_DIM_MULTIPLE, HEAD_DIM_MAX = 16, 256
"""Head widths that the attention component takes."""


def build(checkpoint: Checkpoint, fingerprint: str) -> PreparedModel:
    """The model of a checkpoint, with no weight placed yet.

    Raises `UnsupportedModelError` for a configuration that the canonical forward or the components do not serve.
    """
    architecture = next(name for name in checkpoint.config["architectures"] if name in ARCHITECTURES)
    model_class = ARCHITECTURES[architecture]
    config = parse_config(model_class, checkpoint)
    with torch.device("meta"):
        model = model_class._from_config(config, dtype=torch.bfloat16, attn_implementation="eager")
    base = model.model
    geometry = checked_geometry(config, checkpoint)
    # The meta device has no values: the frequencies are computed again where they have some.
    base.rotary_emb = SharedRotary(type(base.rotary_emb)(config=config))
    embedding = Embedding.like(base.embed_tokens)
    base.embed_tokens = embedding
    replace_linears(base)
    return PreparedModel(
        name=checkpoint.name,
        fingerprint=fingerprint,
        geometry=geometry,
        trunk=Trunk(base.eval()),
        vocabulary=Vocabulary(
            geometry.vocabulary, geometry.hidden, tied=embedding if config.tie_word_embeddings else None
        ),
        attentions=[layer.self_attn for layer in base.layers],
        sampling=sampling_defaults(architecture, checkpoint.name),
        frontend=with_parsers(checkpoint.frontend),
    )


def replace_linears(module: nn.Module) -> None:
    """Put the component in place of every dense projection below a module."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, Linear.like(child))
        else:
            replace_linears(child)


def parse_config(model_class: type[PreTrainedModel], checkpoint: Checkpoint) -> PreTrainedConfig:
    """The configuration as Transformers reads it, held to what is prepared."""
    stated = dict(checkpoint.config)
    if stated.get("quantization_config"):
        method = stated["quantization_config"].get("quant_method", "?")
        raise UnsupportedModelError(
            f"{checkpoint.name} is quantized ({method}); bf16, f16 and f32 safetensors and GGUF files are prepared"
        )
    try:
        config: PreTrainedConfig = model_class.config_class.from_dict(stated)
    except Exception as error:  # noqa: BLE001 - Transformers and hub validation raise many types, all about the input.
        raise UnsupportedModelError(f"config.json of {checkpoint.name} is not valid: {error}") from error
    rope: dict[str, Any] = config.rope_parameters or {}
    if rope.get("rope_type") not in ROPE_TYPES:
        raise UnsupportedModelError(
            f"rotary embedding type {rope.get('rope_type')!r} is not prepared: its frequencies depend on the length of "
            f"the sequence, which a captured program cannot follow; {', '.join(ROPE_TYPES)} are prepared"
        )
    return config


def checked_geometry(config: PreTrainedConfig, checkpoint: Checkpoint) -> ModelGeometry:
    """The sizes that storage and programs follow from."""
    heads, key_value_heads = config.num_attention_heads, config.num_key_value_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    if heads % key_value_heads or head_dim % HEAD_DIM_MULTIPLE or head_dim > HEAD_DIM_MAX:
        raise UnsupportedModelError(
            f"{heads} query heads over {key_value_heads} key-value heads of width {head_dim} are not prepared: "
            f"heads have to divide evenly, and the width to be a multiple of {HEAD_DIM_MULTIPLE} up to {HEAD_DIM_MAX}"
        )
    tokens = Tokenizer.from_buffer(checkpoint.frontend.tokenizer).get_vocab_size(with_added_tokens=True)
    if tokens > config.vocab_size or max(checkpoint.frontend.eos_tokens) >= config.vocab_size:
        raise UnsupportedModelError(
            f"the tokenizer of {checkpoint.name} has {tokens} tokens, more than the {config.vocab_size} rows of its "
            f"embedding; the tokenizer and the weights are of different models"
        )
    return ModelGeometry(
        hidden=config.hidden_size,
        vocabulary=config.vocab_size,
        layers=config.num_hidden_layers,
        query_heads=heads,
        key_value_heads=key_value_heads,
        head_dim=head_dim,
        context_tokens_max=config.max_position_embeddings,
    )
