"""Transformers eager in BF16 on the same weights: a process of its own that prints one JSON object of rates.

Run by `benchmarks/host.py`; tokens a second by measurement name.
"""

import json
import os
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, PreTrainedModel

from benchmarks.workload import CONCURRENCIES, DECODE_PROMPT_TOKENS, PREFILL_TOKENS, prompts
from ignition.checkpoint import open_checkpoint
from scripts.smollm2 import weights

_DECODE_STEPS = 32


def main() -> None:
    """Loads the model, measures and prints."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = load_model()
    rates = {}
    with torch.inference_mode():
        for lanes in CONCURRENCIES:
            rates[f"decode bf16 c={lanes}"] = _decode_rate(model, lanes)
        for tokens in PREFILL_TOKENS:
            rates[f"prefill {tokens} bf16"] = _prefill_rate(model, tokens)
    print(json.dumps(rates))


def load_model() -> PreTrainedModel:
    """The canonical model with the weights that Flare's core holds too."""
    checkpoint = open_checkpoint(str(weights()))
    config = AutoConfig.for_model(**checkpoint.config)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    state = {name: checkpoint.read_rows(name, 0, info.rows) for name, info in checkpoint.tensors.items()}
    # A tied vocabulary projection has no tensor of its own; anything else that is missing is an error.
    state.setdefault("lm_head.weight", state["model.embed_tokens.weight"])
    model.load_state_dict(state)
    checkpoint.close()
    return model.eval()


def _decode_rate(model: PreTrainedModel, lanes: int) -> float:
    cache = DynamicCache()
    step = torch.tensor(prompts(lanes, DECODE_PROMPT_TOKENS, seed=lanes))
    started = 0.0
    for index in range(_DECODE_STEPS + 1):
        logits = model(step, cache=cache, use_cache=True, logits_to_keep=1).logits
        step = logits[:, -1].argmax(-1, keepdim=True)
        if index == 0:
            started = time.perf_counter()
    return _DECODE_STEPS * lanes / (time.perf_counter() - started)


def _prefill_rate(model: PreTrainedModel, tokens: int) -> float:
    prompt = torch.tensor(prompts(1, tokens, seed=tokens))
    started = time.perf_counter()
    model(prompt, use_cache=True, logits_to_keep=1)
    return tokens / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
