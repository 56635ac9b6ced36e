"""Llama and the families that share its block: rotary attention, then a gated MLP, each behind an RMSNorm.

The canonical Transformers forward is what runs. Qwen2's biases, Qwen3's head norms, Mistral's windows and SmolLM3's
layers without positions are all in that forward; here are only the modules that serving replaces.
"""

from ignition.recipes.llama.model import ARCHITECTURES, build
from ignition.recipes.llama.weights import ignored_tensors

__all__ = ["ARCHITECTURES", "build", "ignored_tensors"]
