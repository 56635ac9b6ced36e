"""Tiny random checkpoints of every architecture, saved by Transformers itself."""

import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

VOCABULARY = 320

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "eos_token_id": 2,
    "bos_token_id": 1,
    "pad_token_id": None,
}

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}

VARIANTS = {
    "llama": (LlamaForCausalLM, LlamaConfig, {"tie_word_embeddings": True}),
    "llama-untied": (LlamaForCausalLM, LlamaConfig, {"head_dim": 32, "attention_bias": True, "mlp_bias": True}),
    "llama-llama3-rope": (LlamaForCausalLM, LlamaConfig, {"rope_parameters": LLAMA3_ROPE}),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": 40}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {"tie_word_embeddings": True}),
    "qwen2-windows": (
        Qwen2ForCausalLM,
        Qwen2Config,
        {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1},
    ),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 32, "rope_parameters": YARN_ROPE}),
    "smollm3": (SmolLM3ForCausalLM, SmolLM3Config, {"no_rope_layer_interval": 2}),
}


def canonical_model(variant):
    """A seeded bf16 model whose biases and norms are not trivial."""
    model_class, config_class, changes = VARIANTS[variant]
    torch.manual_seed(11)
    model = model_class(config_class(**{**SIZES, **changes})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.1)
            elif "norm" in name:
                parameter.normal_(mean=1.0, std=0.1)
            else:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
    return model.to(torch.bfloat16)


def save_checkpoint(model, folder):
    """The model as a checkpoint folder with a tokenizer."""
    model.save_pretrained(folder)
    tokens = {chr(0x4E00 + index): index for index in range(VOCABULARY)}
    Tokenizer(BPE(tokens, [])).save(str(folder / "tokenizer.json"))
    return folder
