"""What a GGUF file's metadata and tensor names mean in Transformers' terms.

llama.cpp names an architecture where Transformers names a class; the table below is the whole of what is
read. A file of another architecture is refused by name.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ignition.errors import UnsupportedModelError

ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "smollm3": ("SmolLM3ForCausalLM", "smollm3"),
}

INTERLEAVED = {"llama", "smollm3"}
"""Architectures whose query and key rows llama.cpp stores in pairs, for its own form of the rotary embedding.
"""

MODEL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

ROPE_FACTORS = "rope_freqs.weight"


def tensor_name(stored: str) -> str:
    """A tensor's Transformers name; a name that means nothing here is kept, for the loader to report."""
    if stored in MODEL_NAMES:
        return MODEL_NAMES[stored]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", stored)
    if match is None or match[2] not in LAYER_NAMES:
        return stored
    return f"model.layers.{match[1]}.{LAYER_NAMES[match[2]]}.{match[3]}"


def interleaved_heads(architecture: str, name: str, config: Mapping[str, Any]) -> int:
    """Heads whose rows the file holds in pairs, 0 for a tensor that it holds as Transformers does."""
    if architecture not in INTERLEAVED:
        return 0
    if ".q_proj." in name:
        return int(config["num_attention_heads"])
    return int(config["num_key_value_heads"]) if ".k_proj." in name else 0


def configuration(metadata: Mapping[str, Any], names: Iterable[str], rope_factors: np.ndarray | None) -> dict[str, Any]:
    """The Hugging Face configuration that the metadata states. Raises `UnsupportedModelError`."""
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"GGUF architecture {architecture!r} is not prepared; {', '.join(ARCHITECTURES)} are"
        )

    def read(key: str, default: Any = None) -> Any:
        value = metadata.get(f"{architecture}.{key}", default)
        if value is None:
            raise UnsupportedModelError(f"the GGUF metadata lacks {architecture}.{key}")
        if isinstance(value, list):
            raise UnsupportedModelError(f"{architecture}.{key} differs from layer to layer, which no recipe prepares")
        return value

    if read("expert_count", 0):
        raise UnsupportedModelError("mixture-of-experts GGUF files are not prepared in this release")
    class_name, model_type = ARCHITECTURES[architecture]
    stored, heads, hidden = set(names), read("attention.head_count"), read("embedding_length")
    config = {
        "architectures": [class_name],
        "model_type": model_type,
        "hidden_size": hidden,
        "intermediate_size": read("feed_forward_length"),
        "num_hidden_layers": read("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": read("attention.head_count_kv", heads),
        "head_dim": read("attention.key_length", read("rope.dimension_count", hidden // heads)),
        "max_position_embeddings": read("context_length"),
        "rms_norm_eps": read("attention.layer_norm_rms_epsilon"),
        "vocab_size": len(metadata.get("tokenizer.ggml.tokens", ())),
        "tie_word_embeddings": "output.weight" not in stored,
        "rope_parameters": rope_parameters(read, rope_factors),
        "hidden_act": "silu",
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "dtype": "bfloat16",
    }
    if architecture != "qwen2":  # Qwen2 has its biases by definition and no field for them.
        config["attention_bias"] = "blk.0.attn_q.bias" in stored
    if architecture in INTERLEAVED:
        config["mlp_bias"] = "blk.0.ffn_up.bias" in stored
    return config


def rope_parameters(read: Any, factors: np.ndarray | None) -> dict[str, Any]:
    """The rotary embedding's parameters; `factors` are the file's per-frequency divisors where it has them."""
    theta = read("rope.freq_base", 10000.0)
    scaling = read("rope.scaling.type", "none")
    if factors is not None:
        return llama3_parameters(theta, factors)
    if scaling == "none":
        return {"rope_type": "default", "rope_theta": theta}
    if scaling == "linear":
        return {"rope_type": "linear", "rope_theta": theta, "factor": read("rope.scaling.factor")}
    if scaling == "yarn":
        return {
            "rope_type": "yarn",
            "rope_theta": theta,
            "factor": read("rope.scaling.factor"),
            "original_max_position_embeddings": read("rope.scaling.original_context_length"),
        }
    raise UnsupportedModelError(f"rotary scaling {scaling!r} of the GGUF file is not prepared; linear and yarn are")


def llama3_parameters(theta: float, factors: np.ndarray) -> dict[str, Any]:
    """Llama 3's parameters, recovered from the divisors that llama.cpp made of them.

    The file keeps only the result. Every published Llama 3 uses the constants below with its own factor,
    which is the largest divisor; the divisors that they give must be the file's, or the file is refused.
    """
    factor = float(factors.max())
    parameters = {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    width = 2 * len(factors)
    wavelengths = 2 * math.pi * theta ** (np.arange(0, width, 2, dtype=np.float64) / width)
    smooth = np.clip((8192 / wavelengths - 1.0) / 3.0, 0.0, 1.0)
    expected = 1.0 / ((1.0 - smooth) / factor + smooth)
    if not np.allclose(factors, expected, rtol=1e-4):
        raise UnsupportedModelError(
            f"{ROPE_FACTORS} holds rotary divisors that are not Llama 3's; prepare the safetensors checkpoint instead"
        )
    return parameters
