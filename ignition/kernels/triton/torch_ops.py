"""The CUDA operators under torch's names, `torch.ops.flare.*`; importing this module registers them.

What has candidates runs by the one that is chosen (`ignition/kernels/candidates.py`); the rest has one way to run.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from ignition.kernels import candidates
from ignition.kernels.candidates import Candidate, Query, Tunable
from ignition.kernels.triton import attention, linear, pages, projection, rows, sampling, state, token_state

Tensor = torch.Tensor
VERSION = 3
"""Of every tunable here: raised when a configuration of the same values would mean something else."""

ATTENTION_SIZES = ("rows", "query_heads", "key_value_heads", "width", "context_tokens", "window")


def projection_tunable(name: str, run: Callable[..., Any], *, gated: bool = False, normed: bool = False) -> Tunable:
    """A projection's candidates, of sizes rows, outputs and inputs. Many rows are a matrix product, with one way."""

    def configurations(query: Query) -> list[Candidate]:
        sizes = dict(query.sizes)
        if sizes["rows"] > projection.ROWS_MAX:
            return [{}]
        shape = projection.Shape(sizes["rows"], sizes["outputs"], sizes["inputs"], gated=gated, normed=normed)
        return [asdict(config) for config in projection.candidates(shape)]

    def run_by(candidate: Candidate, *arguments: Any) -> Any:
        return run(*arguments, projection.Config(**candidate) if candidate else None)  # type: ignore[arg-type]

    return Tunable(name, VERSION, configurations, lambda query, candidate: 0, run_by)


def attention_tunable(name: str, run: Callable[..., Any]) -> Tunable:
    """Attention's candidates, of ATTENTION_SIZES."""

    def configurations(query: Query) -> list[Candidate]:
        *sizes, _ = (dict(query.sizes)[size] for size in ATTENTION_SIZES)
        return [asdict(config) for config in attention.candidates(*sizes)]

    def scratch_bytes(query: Query, candidate: Candidate) -> int:
        sizes, splits = dict(query.sizes), int(candidate["splits"])
        return sizes["rows"] * sizes["query_heads"] * splits * (sizes["width"] + 2) * 4 if splits > 1 else 0

    def run_by(candidate: Candidate, *arguments: Any) -> Any:
        return run(*arguments, attention.Config(**candidate))  # type: ignore[arg-type]

    return Tunable(name, VERSION, configurations, scratch_bytes, run_by)


LINEAR = projection_tunable("linear", linear.linear)
LINEAR_ADD = projection_tunable("linear_add", linear.linear_add)
NORM_LINEAR = projection_tunable("norm_linear", linear.norm_linear, normed=True)
NORM_GATED = projection_tunable("norm_gated", linear.norm_gated, gated=True, normed=True)
VOCABULARY = projection_tunable("vocabulary", linear.vocabulary)
ATTENTION = attention_tunable("attention", attention.attention)
ROTARY_ATTENTION = attention_tunable("rotary_attention", attention.rotary_attention)


def project(tunable: Tunable, outputs: int, *arguments: Any) -> Tensor:
    """A projection whose first argument is its input."""
    width = arguments[0].shape[-1]
    y: Tensor = candidates.call(tunable, arguments, rows=arguments[0].numel() // width, outputs=outputs, inputs=width)
    return y


@torch.library.impl("flare::linear", "cuda")
def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, out_features: int) -> Tensor:
    return project(LINEAR, out_features, x, weight, bias, out_features)


@torch.library.impl("flare::linear_add", "cuda")
def _linear_add(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor, out_features: int) -> Tensor:
    return project(LINEAR_ADD, out_features, x, weight, bias, residual, out_features)


@torch.library.impl("flare::norm_linear", "cuda")
def _norm_linear(x: Tensor, gain: Tensor, eps: float, weight: Tensor, bias: Tensor | None, out_features: int) -> Tensor:
    return project(NORM_LINEAR, out_features, x, gain, eps, weight, bias, out_features)


@torch.library.impl("flare::norm_gated", "cuda")
def _norm_gated(x: Tensor, gain: Tensor, eps: float, weight: Tensor, out_features: int) -> Tensor:
    return project(NORM_GATED, out_features, x, gain, eps, weight, out_features)


@torch.library.impl("flare::vocabulary", "cuda")
def _vocabulary(hidden: Tensor, weight: Tensor, logits: Tensor, lanes: Tensor, rows: int) -> None:
    project(VOCABULARY, rows, hidden, weight, logits, lanes, rows)


@torch.library.impl("flare::attention", "cuda")
def _attention(query: Tensor, *arguments: Any) -> Tensor:
    count, heads, width = query.shape
    key_value_heads, window, context_tokens = arguments[4], arguments[9], arguments[10]
    sizes = (count, heads, key_value_heads, width, context_tokens, window)
    return attend(ATTENTION, (query, *arguments), sizes)


@torch.library.impl("flare::rotary_attention", "cuda")
def _rotary_attention(qkv: Tensor, cosines: Tensor, *arguments: Any) -> Tensor:
    heads, key_value_heads, window, context_tokens = arguments[5], arguments[6], arguments[11], arguments[12]
    sizes = (arguments[1].numel(), heads, key_value_heads, cosines.shape[-1], context_tokens, window)
    return attend(ROTARY_ATTENTION, (qkv, cosines, *arguments), sizes)


def attend(tunable: Tunable, arguments: tuple[Any, ...], sizes: tuple[int, ...]) -> Tensor:
    """Attention of ATTENTION_SIZES."""
    y: Tensor = candidates.call(tunable, arguments, **dict(zip(ATTENTION_SIZES, sizes, strict=True)))
    return y


for implementation in (
    *(rows.embedding, rows.copy, pages.kv_write, sampling.sample),
    *(token_state.begin_decode, token_state.begin_prefill, token_state.begin_resume),
    *(token_state.commit_decode, token_state.commit_prefill),
    *(state.initialize, state.restore, state.snapshot, state.reset),
):
    torch.library.impl(f"flare::{implementation.__name__}", "cuda")(implementation)
