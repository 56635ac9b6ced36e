"""Transformers on the same checkpoint and GPU: decode steps eager, and compiled in a CUDA graph over a static cache."""

import argparse
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, StaticCache

from benchmarks.gpu_qualify_rows import DECODE_STEPS, HISTORY_TOKENS, merge
from ignition.devices.cuda.bench import elapsed_ms

SHORT_TOKENS = 32


def main() -> None:
    """Measures both, and merges each as it is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.bfloat16, device_map="cuda").eval()
    with torch.inference_mode():
        found = {"transformers eager": eager_step_ms(model)}
        merge(arguments.json, {"transformers_step_ms": found})
        found["transformers compiled in a CUDA graph"] = graph_step_ms(model)
        merge(arguments.json, {"transformers_step_ms": found})


def eager_step_ms(model: PreTrainedModel) -> float:
    """Milliseconds of a decode step of `generate`: what a longer answer takes more than a short one."""
    prompt = prompt_tokens()

    def generate(tokens: int) -> float:
        started = time.perf_counter()
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            do_sample=False,
            pad_token_id=2,
        )
        torch.cuda.synchronize()
        return time.perf_counter() - started

    lengths = (SHORT_TOKENS, SHORT_TOKENS + DECODE_STEPS)
    generate(SHORT_TOKENS)
    short, long = (min(generate(tokens) for _ in range(3)) for tokens in lengths)
    return (long - short) / DECODE_STEPS * 1e3


def graph_step_ms(model: PreTrainedModel) -> float:
    """Milliseconds of a greedy step over a static cache, compiled whole, captured by hand and replayed back to back.

    `generate` compiles a step, too, but leaves its graph out where the cache's own counters are written to.
    """
    prompt = prompt_tokens()
    cache = StaticCache(config=model.config, max_cache_len=HISTORY_TOKENS + 2 * DECODE_STEPS)
    logits = model(prompt, past_key_values=cache, logits_to_keep=1).logits
    token = logits[:, -1:].argmax(-1)
    position = torch.full((1, 1), HISTORY_TOKENS, device="cuda")

    def forward(token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        logits = model(token, position_ids=position, past_key_values=cache, logits_to_keep=1).logits
        best: torch.Tensor = logits[:, -1:].argmax(-1)
        return best

    compiled = torch.compile(forward, fullgraph=True, dynamic=False, mode="max-autotune-no-cudagraphs")

    def step() -> None:
        token.copy_(compiled(token, position))
        position.add_(1)

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def steps() -> None:
        for _ in range(DECODE_STEPS):
            graph.replay()

    return elapsed_ms(steps) / DECODE_STEPS


def prompt_tokens() -> torch.Tensor:
    """A history, i64[1, tokens]."""
    generator = torch.Generator("cuda").manual_seed(1)
    return torch.randint(1000, 40000, (1, HISTORY_TOKENS), device="cuda", generator=generator)


if __name__ == "__main__":
    main()
