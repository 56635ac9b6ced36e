"""A decode step of a Llama-shaped model on CUDA with random weights, by Flare's kernels and by plain torch.

It is what `benchmarks/cuda_kernels.py` measures: the layer stack as one captured step, with the configuration of every
kernel in the caller's hand.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from ignition.kernels.triton import attention, linear, projection, rows, sampling, token_state

EPS = 1e-5
PARTS = ("qkv", "attention", "o", "gate_up", "down", "head")
"""The kernels of a step that have configurations."""

STEPS_MAX = 512
"""Steps that a stack's pages have room for after its context."""

Configs = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Geometry:
    """A model's sizes."""

    name: str
    hidden: int
    layers: int
    heads: int
    key_heads: int
    width: int
    intermediate: int
    vocabulary: int
    tied: bool

    @property
    def joined(self) -> int:
        """Outputs of the joined q, k and v."""
        return (self.heads + 2 * self.key_heads) * self.width

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a step reads."""
        layer = self.hidden * (self.joined + self.heads * self.width + 3 * self.intermediate)
        return 2 * (self.layers * layer + self.vocabulary * self.hidden)

    def part_weights(self, part: str) -> int:
        """Weights of one of a layer's projections, or of the head."""
        shape = self.shape(part, 1)
        return (2 if shape.gated else 1) * shape.out_features * shape.in_features

    def shape(self, part: str, count: int) -> projection.Shape:
        """The shape of one of a step's projections."""
        sizes = {
            "qkv": (self.joined, self.hidden, False, True),
            "o": (self.hidden, self.heads * self.width, False, False),
            "gate_up": (self.intermediate, self.hidden, True, True),
            "down": (self.hidden, self.intermediate, False, False),
            "head": (self.vocabulary, self.hidden, False, False),
        }
        return projection.Shape(count, *sizes[part])

    def candidates(self, part: str, count: int, context: int) -> list[Any]:
        """The configurations of one of a step's kernels."""
        if part == "attention":
            return list(attention.candidates(count, self.heads, self.key_heads, self.width, context))
        return list(projection.candidates(self.shape(part, count)))


LLAMA_1B = Geometry("1B", 2048, 16, 32, 8, 64, 8192, 128256, tied=True)
LLAMA_8B = Geometry("8B", 4096, 32, 32, 8, 128, 14336, 128256, tied=False)
GEOMETRIES = {geometry.name: geometry for geometry in (LLAMA_1B, LLAMA_8B)}


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer's weights and where its keys and values lie in a page."""

    input_gain: torch.Tensor
    qkv: torch.Tensor
    o: torch.Tensor
    output_gain: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    key_offset: int
    value_offset: int


class Requests:
    """What a step reads and writes of requests: one a lane, each live."""

    def __init__(self, count: int, vocabulary: int) -> None:
        i64 = torch.int64
        self.lane_slots = torch.arange(count, device="cuda")
        self.lane_epochs = torch.ones(count, dtype=i64, device="cuda")
        self.lane_masked = torch.zeros(count, dtype=i64, device="cuda")
        self.fields = torch.zeros((count, 16), dtype=i64, device="cuda")
        self.parameters = torch.tensor([[1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]] * count, device="cuda")
        self.histogram = torch.zeros((count, vocabulary), dtype=torch.int32, device="cuda")
        self.bias_tokens = torch.zeros((count, 4), dtype=i64, device="cuda")
        self.bias_values = torch.zeros((count, 4), device="cuda")
        self.masks = torch.full((count, -(-vocabulary // 32)), -1, dtype=torch.int32, device="cuda").view(torch.uint32)
        self.eos = torch.tensor([vocabulary - 1], device="cuda")
        self.frame = torch.zeros(1, dtype=i64, device="cuda")
        self.completion = torch.zeros((2, count, 24), dtype=i64, device="cuda")
        self.logprob_tokens = torch.zeros((2, count, 20), dtype=i64, device="cuda")
        self.logprob_values = torch.zeros((2, count, 21), device="cuda")
        self.logits = torch.zeros((count, vocabulary), device="cuda")

    def sample(self, lanes: torch.Tensor) -> None:
        """Sample the lanes from the logits."""
        requests = (self.fields, self.parameters, self.histogram, self.bias_tokens, self.bias_values, self.masks)
        results = (self.completion, self.logprob_tokens, self.logprob_values)
        sampling.sample(self.logits, lanes, *requests, self.eos, self.frame, *results, token_capacity=8, family=2)


def request_fields(consumed: int, seed: int, top_k: int = 0, logprobs: int = -1) -> list[int]:
    """A request's fields: epoch 1, a pending token, no end."""
    return [1, consumed, 0, 0, 17 * seed + 5, 0, seed, top_k, 1 << 40, 1, logprobs, 0, 0, 0, 0, 0]


class Stack:
    """Weights and state for steps of `count` rows at a context; `layers` cuts the model short."""

    def __init__(self, geometry: Geometry, count: int, context: int, layers: int | None = None) -> None:
        self.geometry, self.count, self.context = geometry, count, context
        segment = 64 * geometry.key_heads * geometry.width * 2
        depth = geometry.layers if layers is None else layers
        self.page_stride = 2 * depth * segment
        self.layers = [self._layer(2 * i * segment, (2 * i + 1) * segment) for i in range(depth)]
        self.table = random(geometry.vocabulary, geometry.hidden)
        self.head = self.table if geometry.tied else random(geometry.vocabulary, geometry.hidden)
        self.gain = random(geometry.hidden, center=1.0)
        self.row_stride = 2 * geometry.hidden
        self.rows = torch.zeros((1 + count) * self.row_stride, dtype=torch.uint8, device="cuda")
        blocks = -(-(context + STEPS_MAX) // 64)
        self.pages = random(count * blocks * self.page_stride // 2).view(torch.uint8)
        self.page_table = torch.randperm(count * blocks, device="cuda").to(torch.int32).view(count, blocks)
        angle = torch.outer(
            torch.arange(64 * blocks, device="cuda").double(),
            5e5 ** -torch.arange(0, 1, 2 / geometry.width, device="cuda").double(),
        )
        self.cosines = torch.cat((angle.cos(), angle.cos()), -1).bfloat16()
        self.sines = torch.cat((angle.sin(), angle.sin()), -1).bfloat16()
        self.requests = Requests(count, geometry.vocabulary)

    def rewind(self) -> None:
        """Every lane has consumed all of its context but one token, which is pending."""
        self.requests.fields.copy_(torch.tensor([request_fields(self.context - 1, slot) for slot in range(self.count)]))

    def _layer(self, key_offset: int, value_offset: int) -> Layer:
        g = self.geometry
        return Layer(
            *(random(g.hidden, center=1.0), random(g.joined, g.hidden), random(g.hidden, g.heads * g.width)),
            *(random(g.hidden, center=1.0), random(2 * g.intermediate, g.hidden), random(g.hidden, g.intermediate)),
            *(key_offset, value_offset),
        )

    def step(self, configs: Configs) -> None:
        """One decode step, from each lane's pending token to its next."""
        g, r = self.geometry, self.requests
        tokens, positions, token_slots, lanes = token_state.begin_decode(
            *(
                r.lane_slots,
                r.lane_epochs,
                r.lane_masked,
                r.fields,
                self.count,
                g.vocabulary,
                64 * self.page_table.shape[1],
            )
        )
        positions = positions.view(-1)
        cosines, sines = self.cosines[positions], self.sines[positions]
        x = rows.embedding(tokens, token_slots, self.table, g.vocabulary, g.hidden)
        for layer in self.layers:
            qkv = linear.norm_linear(x, layer.input_gain, EPS, layer.qkv, None, g.joined, configs["qkv"])
            y = attention.rotary_attention(
                *(qkv, cosines, sines, token_slots, positions, self.page_table, self.pages, g.heads, g.key_heads),
                *(self.page_stride, layer.key_offset, layer.value_offset, g.width**-0.5, 0, self.context),
                configs["attention"],
            )
            x = linear.linear_add(y.view(x.shape[:-1] + (-1,)), layer.o, None, x, g.hidden, configs["o"])
            m = linear.norm_gated(x, layer.output_gain, EPS, layer.gate_up, g.intermediate, configs["gate_up"])
            x = linear.linear_add(m, layer.down, None, x, g.hidden, configs["down"])
        h = rows.norm(x, self.gain, EPS)
        token_state.commit_decode(h, lanes, r.fields, self.rows, self.row_stride, 1, 0)
        linear.vocabulary(h.view(self.count, -1), self.head, r.logits, lanes, g.vocabulary, configs["head"])
        r.sample(lanes)

    def chunk(self, tokens: int, config: Any) -> Callable[[], torch.Tensor]:
        """The layers over the last tokens of the context, as a prefill runs them, with attention's configuration."""
        g, first = self.geometry, self.context - tokens
        positions = torch.arange(first, self.context, device="cuda")
        slots = torch.zeros_like(positions)
        cosines, sines, start = self.cosines[positions], self.sines[positions], self.table[:tokens].view(1, tokens, -1)

        def step() -> torch.Tensor:
            x = start
            for layer in self.layers:
                qkv = linear.norm_linear(x, layer.input_gain, EPS, layer.qkv, None, g.joined)
                y = attention.rotary_attention(
                    *(qkv, cosines, sines, slots, positions, self.page_table, self.pages, g.heads, g.key_heads),
                    *(self.page_stride, layer.key_offset, layer.value_offset, g.width**-0.5, 0, self.context, config),
                )
                x = linear.linear_add(y.view(1, tokens, -1), layer.o, None, x, g.hidden)
                m = linear.norm_gated(x, layer.output_gain, EPS, layer.gate_up, g.intermediate)
                x = linear.linear_add(m, layer.down, None, x, g.hidden)
            return x

        return step

    def contiguous_cache(self, layer: Layer) -> tuple[torch.Tensor, torch.Tensor]:
        """A layer's keys and values as [B, Hk, context, D], for attention that knows no pages."""
        g = self.geometry
        pages, used = self.pages.view(torch.bfloat16).view(-1, self.page_stride // 2), -(-self.context // 64)
        parts = []
        for offset in (layer.key_offset // 2, layer.value_offset // 2):
            part = pages[self.page_table[:, :used].long(), offset : offset + 64 * g.key_heads * g.width]
            part = part.view(self.count, -1, g.key_heads, 64, g.width).transpose(1, 2)
            part = part.reshape(self.count, g.key_heads, -1, g.width)
            parts.append(part[:, :, : self.context].contiguous())
        return parts[0], parts[1]


def run_part(geometry: Geometry, part: str, count: int, config: Any, weights: int) -> Callable[[], None]:
    """A projection of a step alone, over some distinct weights one after another; it has run once."""
    shape = geometry.shape(part, count)
    n, k = shape.out_features, shape.in_features
    x, residual, gain = random(count, k), random(count, n), random(k, center=1.0)
    matrices = [random((2 if shape.gated else 1) * n, k) for _ in range(weights)]
    logits, lanes = torch.empty(count, n, device="cuda"), torch.tensor([[0, 1, 1, 0]] * count, device="cuda")

    def run() -> None:
        for matrix in matrices:
            if part == "qkv":
                linear.norm_linear(x, gain, EPS, matrix, None, n, config)
            elif part == "gate_up":
                linear.norm_gated(x, gain, EPS, matrix, n, config)
            elif part == "head":
                linear.vocabulary(x, matrix, logits, lanes, n, config)
            else:
                linear.linear_add(x, matrix, None, residual, n, config)

    run()
    return run


def run_attention(
    geometry: Geometry, rows: int, requests: int, context: int, config: Any, caches: int
) -> Callable[[], None]:
    """Attention alone of the last rows of a context, or of a row of each of several; over caches one after another."""
    g, segment, blocks = geometry, 64 * geometry.key_heads * geometry.width * 2, -(-context // 64)
    pages = [random(requests * blocks * segment).view(torch.uint8) for _ in range(caches)]
    table = torch.randperm(requests * blocks, device="cuda").to(torch.int32).view(requests, blocks)
    positions = torch.arange(context - rows, context, device="cuda")
    slots = torch.zeros_like(positions)
    if requests > 1:
        slots, positions = torch.arange(requests, device="cuda"), torch.full((requests,), context - 1, device="cuda")
    qkv, angle = random(1, slots.numel(), g.joined), random(slots.numel(), g.width)

    def run() -> None:
        for memory in pages:
            attention.rotary_attention(
                *(qkv, angle, angle, slots, positions, table, memory, g.heads, g.key_heads, 2 * segment, 0, segment),
                *(g.width**-0.5, 0, context, config),
            )

    run()
    return run


Tensors = tuple[torch.Tensor, ...]


def plain_heads(x: torch.Tensor, weights: Tensors, keys: torch.Tensor, heads: int) -> Sequence[torch.Tensor]:
    """The heads of queries, keys and values [T, heads, D] of x [T, K], in plain torch."""
    input_gain, qkv, *_ = weights
    count, hidden = x.shape
    key_heads, width = keys.shape[1], keys.shape[3]
    parts = functional.linear(functional.rms_norm(x, (hidden,), input_gain, EPS), qkv).view(count, -1, width)
    return torch.split(parts, [heads, key_heads, key_heads], 1)


def plain_rest(x: torch.Tensor, y: torch.Tensor, weights: Tensors) -> torch.Tensor:
    """What a layer does with attention's result y [T, K], in plain torch."""
    *_, o, output_gain, gate_up, down = weights
    x = x + functional.linear(y, o)
    a, b = functional.linear(functional.rms_norm(x, (x.shape[1],), output_gain, EPS), gate_up).chunk(2, -1)
    return x + functional.linear(functional.silu(a) * b, down)


def plain_layer(
    x: torch.Tensor, weights: Tensors, cache: Tensors, angles: Tensors, heads: int, position: int
) -> torch.Tensor:
    """A layer in plain torch; writes its keys and values at a position of a contiguous cache."""
    (keys, values), (cosines, sines) = cache, angles
    q, k, v = plain_heads(x, weights, keys, heads)
    keys[:, :, position] = rotate(k, cosines, sines)
    values[:, :, position] = v
    q = rotate(q, cosines, sines)[:, :, None]
    y = functional.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
    return plain_rest(x, y.reshape(x.shape[0], -1), weights)


def plain_step(stack: Stack, layer: Callable[..., torch.Tensor] = plain_layer) -> Callable[[], torch.Tensor]:
    """The same step in plain torch over a contiguous cache of its own; gives the logits."""
    caches = [stack.contiguous_cache(weights) for weights in stack.layers]
    tokens = torch.tensor([request_fields(0, slot)[4] for slot in range(stack.count)], device="cuda")
    position, heads, hidden = stack.context - 1, stack.geometry.heads, stack.geometry.hidden
    angles = (stack.cosines[position : position + 1], stack.sines[position : position + 1])

    def step() -> torch.Tensor:
        x = functional.embedding(tokens, stack.table)
        for w, cache in zip(stack.layers, caches, strict=True):
            weights = (w.input_gain, w.qkv, w.o, w.output_gain, w.gate_up, w.down)
            x = layer(x, weights, cache, angles, heads, position)
        return functional.linear(functional.rms_norm(x, (hidden,), stack.gain, EPS), stack.head).float()

    return step


def plain_chunk_layer(
    x: torch.Tensor, weights: Tensors, cache: Tensors, angles: Tensors, heads: int, history: int
) -> torch.Tensor:
    """A layer over a chunk x [T, K] in plain torch, with its flash attention, over a contiguous cache."""
    (keys, values), (cosines, sines) = cache, angles
    q, k, v = plain_heads(x, weights, keys, heads)
    keys[0, :, history:] = rotate(k, cosines, sines).transpose(0, 1)
    values[0, :, history:] = v.transpose(0, 1)
    y = flash(rotate(q, cosines, sines).transpose(0, 1)[None], keys, values)
    return plain_rest(x, y[0].transpose(0, 1).reshape(x.shape[0], -1), weights)


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """torch's flash attention of q [B, H, T, D], the last T of the keys' positions."""
    y: torch.Tensor = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0]
    return y


def plain_chunk(stack: Stack, tokens: int, layer: Callable[..., torch.Tensor]) -> Callable[[], torch.Tensor]:
    """What `Stack.chunk` computes, in plain torch."""
    caches = [stack.contiguous_cache(weights) for weights in stack.layers]
    history, heads = stack.context - tokens, stack.geometry.heads
    angles = (stack.cosines[history : stack.context], stack.sines[history : stack.context])

    def step() -> torch.Tensor:
        x = stack.table[:tokens]
        for w, cache in zip(stack.layers, caches, strict=True):
            x = layer(x, (w.input_gain, w.qkv, w.o, w.output_gain, w.gate_up, w.down), cache, angles, heads, history)
        return x

    return step


def rotate(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of x [B, H, D]."""
    left, right = x.chunk(2, -1)
    return x * cosines[:, None] + torch.cat((-right, left), -1) * sines[:, None]


def random(*shape: int, center: float = 0.0) -> torch.Tensor:
    """BF16 on the device, scaled as an initialized weight is."""
    return torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(center, 0.02)
