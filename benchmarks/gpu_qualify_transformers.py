"""Transformers on the same checkpoint and GPU: decode steps eager, and compiled over a static cache."""

import argparse
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from benchmarks.gpu_qualify_rows import DECODE_STEPS, HISTORY_TOKENS, merge

SHORT_TOKENS = 32


def main() -> None:
    """Measures both, and merges each as it is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.bfloat16, device_map="cuda").eval()
    found = {"transformers eager": step_ms(model)}
    merge(arguments.json, {"transformers_step_ms": found})
    model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
    found["transformers compiled"] = step_ms(model, cache_implementation="static")
    merge(arguments.json, {"transformers_step_ms": found})


def step_ms(model: torch.nn.Module, **options: str) -> float:
    """Milliseconds of a decode step: what a longer answer takes more than a short one, after one that warms up."""
    prompt = torch.randint(
        1000, 40000, (1, HISTORY_TOKENS), device="cuda", generator=torch.Generator("cuda").manual_seed(1)
    )

    def generate(tokens: int) -> float:
        started = time.perf_counter()
        model.generate(  # type: ignore[operator]
            prompt,
            attention_mask=torch.ones_like(prompt),
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            do_sample=False,
            pad_token_id=2,
            **options,
        )
        torch.cuda.synchronize()
        return time.perf_counter() - started

    lengths = (SHORT_TOKENS, SHORT_TOKENS + DECODE_STEPS)
    for tokens in lengths:
        generate(tokens)
    short, long = (min(generate(tokens) for _ in range(3)) for tokens in lengths)
    return (long - short) / DECODE_STEPS * 1e3


if __name__ == "__main__":
    main()
