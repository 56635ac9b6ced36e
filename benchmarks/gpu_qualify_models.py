"""Checkpoints of real models' shapes with random weights, for machines that no model can be fetched to.

What a step costs does not depend on the weights' values. The tokenizer is another model's: it names fewer tokens than
the vocabulary has rows, and the rest have no text.
"""

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

_COMMON: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
    "eos_token_id": 2,
    "bos_token_id": 1,
    "torch_dtype": "bfloat16",
}
_ROPE = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
SHAPES: dict[str, dict[str, Any]] = {
    "1b": {
        **{"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64},
        **{"tie_word_embeddings": True, "rope_scaling": {**_ROPE, "factor": 32.0}},
    },
    "8b": {
        **{"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "head_dim": 128},
        **{"tie_word_embeddings": False, "rope_scaling": {**_ROPE, "factor": 8.0}},
    },
}


def main() -> None:
    """Writes one checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of tokenizer.json and its settings")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    config = {**_COMMON, **SHAPES[arguments.shape]}
    (arguments.folder / "config.json").write_text(json.dumps(config, indent=1))
    for path in arguments.tokenizer.iterdir():
        shutil.copy(path, arguments.folder)
    torch.manual_seed(7)
    save_file(dict(tensors(config)), arguments.folder / "model.safetensors", metadata={"format": "pt"})


def tensors(config: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of the model, scaled so that activations keep their size."""
    hidden, inner, vocabulary = (config[key] for key in ("hidden_size", "intermediate_size", "vocab_size"))
    queries, keys = (config[key] * config["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
    projections = {
        **{"self_attn.q_proj": (queries, hidden), "self_attn.k_proj": (keys, hidden)},
        **{"self_attn.v_proj": (keys, hidden), "self_attn.o_proj": (hidden, queries)},
        **{"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)},
    }
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=torch.bfloat16).mul_(shape[-1] ** -0.5).cpu()

    yield "model.embed_tokens.weight", random(vocabulary, hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, shape in projections.items():
            yield f"{prefix}{name}.weight", random(*shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{name}.weight", torch.ones(hidden, dtype=torch.bfloat16)
    yield "model.norm.weight", torch.ones(hidden, dtype=torch.bfloat16)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", random(vocabulary, hidden)


if __name__ == "__main__":
    main()
