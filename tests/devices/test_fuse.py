"""The CUDA trunk without a device: traced, fused and compiled on the host, with plain compositions as operators.

What the patterns find is held by counts, what they make of it by numbers against Transformers.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn import functional

import ignition.kernels.host.torch_ops  # noqa: F401 - Registers the host's operators.
from ignition.checkpoint import WeightMapping, load_weights, open_checkpoint
from ignition.components.attention import PagedCache, attach_cache
from ignition.components.weights import PlainTarget, place_weights
from ignition.devices.cuda.compile import CompiledTrunk, bind
from ignition.devices.cuda.fuse import fuse
from ignition.devices.cuda.trace import trace_trunk
from ignition.kernels import ops
from ignition.kernels.host.packed import PackedStore
from ignition.preparation.model import PAGE_TOKENS
from ignition.recipes import find_recipe
from tests.recipes.test_llama import allocate, relative_error
from tests.recipes.tiny_checkpoints import canonical_model, save_checkpoint

CONTEXT = 512


class RowMajor:
    """Weights as CUDA has them, but for the table, which the host's embedding reads."""

    allocate = staticmethod(allocate)

    def matrix(self, name, rows, columns):
        if "embed_tokens" in name:
            return PackedStore(allocate).matrix(name, rows, columns)
        return PlainTarget(allocate(name, (rows, columns), torch.bfloat16))


def norm(x, gain, eps):
    wide = x.float()
    return gain * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def norm_linear(x, gain, eps, weight, bias, out_features):
    return functional.linear(norm(x, gain, eps), weight, bias)


def norm_gated(x, gain, eps, weight, out_features):
    gate, up = functional.linear(norm(x, gain, eps), weight).split(out_features, -1)
    return functional.silu(gate) * up


def linear_add(x, weight, bias, residual, out_features):
    return functional.linear(x, weight, bias) + residual


def rotary_attention(qkv, cosines, sines, slots, positions, table, pages, heads, key_heads, *rest):
    *place, scale, window, context = rest
    parts = qkv[0].unflatten(-1, (heads + 2 * key_heads, -1))
    half = parts.shape[-1] // 2
    turned = torch.cat((-parts[..., half:], parts[..., :half]), -1)
    rotated = parts * cosines[0][:, None] + turned * sines[0][:, None]
    query, key, _ = rotated.split((heads, key_heads, key_heads), 1)
    value = parts[:, heads + key_heads :]
    ops.kv_write(key.contiguous(), value.contiguous(), slots, positions, table, pages, *place)
    return ops.attention(query.contiguous(), slots, positions, table, pages, key_heads, *place, scale, window, context)


@pytest.fixture(scope="module", autouse=True)
def compositions():
    """The fused operators, and projections of row-major weights, for the host's tensors while these tests run."""
    library = torch.library.Library("flare", "IMPL")
    packed = ignition.kernels.host.torch_ops.linear

    def linear(x, weight, bias, out_features):
        return functional.linear(x, weight, bias) if weight.dim() == 2 else packed(x, weight, bias, out_features)

    for function in (norm_linear, norm_gated, linear_add, rotary_attention):
        library.impl(function.__name__, function, "CPU")
    library.impl("linear", linear, "CPU", allow_override=True)
    yield
    library._destroy()


def build(variant, folder):
    """The canonical model, and the recipe's over the same weights with pages attached."""
    canonical = canonical_model(variant)
    checkpoint = open_checkpoint(str(save_checkpoint(canonical, folder)))
    recipe = find_recipe(checkpoint.config)
    model = recipe.build(checkpoint, "0" * 64)
    targets = place_weights(model.trunk.model, RowMajor(), "model.")
    targets |= place_weights(model.vocabulary, RowMajor(), "lm_head.")
    load_weights(checkpoint, WeightMapping(targets, recipe.ignored(checkpoint)))
    geometry = model.geometry
    segment = geometry.key_value_heads * PAGE_TOKENS * geometry.head_dim * 2
    stride = 2 * geometry.layers * segment
    table = torch.full((2, CONTEXT // PAGE_TOKENS), -1, dtype=torch.int32)
    table[1, :3] = torch.tensor([5, 1, 3])
    pages = allocate("pages", (6 * stride,), torch.uint8)
    for layer, attention in enumerate(model.attentions):
        offset = 2 * layer * segment
        attach_cache(attention, PagedCache(table, pages, stride, offset, offset + segment, CONTEXT))
    return canonical, model


def joined(tensors):
    """One tensor over several; storage does it without a copy."""
    return torch.cat(list(tensors))


LAYERS = 3
FUSED = {"norm_linear": LAYERS, "norm_gated": LAYERS, "rotary_attention": LAYERS, "linear_add": 2 * LAYERS}
# Without fused rotation: head norms stand between the projection and it; one layer in two does not rotate.
CASES = {"llama-llama3-rope": FUSED, "mistral": FUSED, "qwen2-windows": FUSED} | {
    "qwen3": {**FUSED, "rotary_attention": 0},
    "smollm3": {**FUSED, "rotary_attention": 2},
    # A gate with a bias is no pattern; its projections are one all the same.
    "llama-untied": {**FUSED, "norm_linear": 2 * LAYERS, "norm_gated": 0},
}


@pytest.mark.parametrize("variant", CASES)
def test_a_fused_trunk_is_as_close_to_the_exact_forward_as_transformers_is(tmp_path, variant):
    canonical, model = build(variant, tmp_path)
    traced = trace_trunk(model.trunk, hidden=model.geometry.hidden, device="cpu")
    counts = fuse(traced, joined)
    assert {name: counts[str(getattr(ops, name))] for name in FUSED} == CASES[variant]
    tokens = torch.randint(0, 320, (150,), generator=torch.Generator().manual_seed(5))
    static = traced.at(150)
    given = {
        "tokens": tokens[None],
        "positions": torch.arange(150)[None],
        "token_slots": torch.ones(150, dtype=torch.int64),
    }
    with torch.no_grad():
        (hidden,) = static.graph(*bind(static, given))
        check_error(canonical, tokens, hidden[0])


@pytest.mark.parametrize("variant", ["llama-llama3-rope", "llama-untied", "qwen3", "smollm3"])
def test_capacities_compile_from_one_trace_and_continue_each_other(tmp_path, variant):
    canonical, model = build(variant, tmp_path)
    trunk = CompiledTrunk(model.trunk, hidden=model.geometry.hidden, rows=[128, 16, 1], join=joined, device="cpu")
    tokens = torch.randint(0, 320, (145,), generator=torch.Generator().manual_seed(5))
    parts = [
        trunk(tokens[None, first:end], torch.arange(first, end)[None], torch.ones(end - first, dtype=torch.int64))[0]
        for first, end in pairwise((0, 128, 144, 145))
    ]
    check_error(canonical, tokens, torch.cat(parts))


def test_capacities_run_side_by_side(tmp_path):
    _, model = build("qwen3", tmp_path)
    counts = [16, 8, 4, 2, 1]
    trunk = CompiledTrunk(model.trunk, hidden=model.geometry.hidden, rows=counts, join=joined, device="cpu")

    def run(count):
        with torch.no_grad():
            return trunk(torch.ones((1, count), dtype=torch.int64), torch.arange(count)[None], torch.full((count,), -1))

    with ThreadPoolExecutor(len(counts)) as pool:
        first, second = (list(pool.map(run, counts)) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_a_second_compilation_comes_from_the_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    _, model = build("llama-llama3-rope", tmp_path)
    hits = []
    for _ in range(2):
        counters.clear()
        CompiledTrunk(model.trunk, hidden=model.geometry.hidden, rows=[16, 1], join=joined, device="cpu")
        hits.append(counters["aot_autograd"]["autograd_cache_hit"])
    assert counters["aot_autograd"]["autograd_cache_miss"] == 0
    assert hits[0] == 0
    assert hits[1] > 0


def check_error(canonical, tokens, hidden):
    """Against the same weights in float64: ours may err 1.25 times as much as Transformers in BF16 does."""
    with torch.no_grad():
        eager = canonical.model(tokens[None], use_cache=False).last_hidden_state[0]
        exact = canonical.double().model(tokens[None], use_cache=False).last_hidden_state[0]
    assert relative_error(hidden, exact) <= 1.25 * relative_error(eager, exact)


def test_weights_that_do_not_lie_one_after_another_are_left_apart(tmp_path):
    _, model = build("llama-llama3-rope", tmp_path)
    traced = trace_trunk(model.trunk, hidden=model.geometry.hidden, device="cpu")
    counts = fuse(traced, lambda tensors: None)
    assert counts == {str(ops.linear_add): 2 * LAYERS}
