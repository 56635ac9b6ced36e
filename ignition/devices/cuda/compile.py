"""Compiles the trunk for every capacity: static shapes, our operators opaque, what is pointwise left to Inductor.

What was compiled is kept by torch's caches, so that a second preparation of a model compiles nothing. They take a graph
whose nodes say what they hold, and a tag for what a graph does not show: the rules by which our operators' results have
their shapes.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config as inductor_config
import torch.compiler.config as compiler_config
from torch import fx, nn
from torch._guards import TracingContext, tracing
from torch._inductor.compile_fx import compile_fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ignition.devices.cuda.fuse import Join, fuse
from ignition.devices.cuda.trace import TracedTrunk, trace_trunk
from ignition.errors import PreparationError
from ignition.kernels import ops

_SETTINGS = {
    # Fused kernels round where eager BF16 rounds.
    "emulate_precision_casts": True,
    "size_asserts": False,
    "freezing": False,
    "max_autotune": False,
    # Graphs are captured by us.
    "triton.cudagraphs": False,
}


class CompiledTrunk:
    """`trunk(tokens i64[1, T], positions i64[1, T], token_slots i64[T])` for the counts T that were compiled."""

    def __init__(self, trunk: nn.Module, *, hidden: int, rows: Sequence[int], join: Join, device: str) -> None:
        traced = trace_trunk(trunk, hidden=hidden, device=device)
        self.fused: Counter[str] = fuse(traced, join)
        self._compiled = {count: compile_static(traced.at(count), count, device=device) for count in rows}

    def __call__(self, tokens: torch.Tensor, positions: torch.Tensor, token_slots: torch.Tensor) -> torch.Tensor:
        return self._compiled[tokens.shape[1]](tokens, positions, token_slots)


TrunkFunction = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def compile_static(trunk: TracedTrunk, count: int, *, device: str) -> TrunkFunction:
    """One capacity's function. Raises `PreparationError` where Inductor cannot lower the forward."""
    inputs = bind(trunk, example_arguments(count, device))
    mode = FakeTensorMode(shape_env=ShapeEnv())
    tag = hashlib.sha256(Path(ops.__file__).read_bytes()).hexdigest()
    try:
        settings = inductor_config.patch(_SETTINGS), compiler_config.patch(cache_key_tag=tag)  # type: ignore[attr-defined]
        with torch.no_grad(), settings[0], settings[1]:
            with mode:
                Described(trunk.graph).run(*[mode.from_tensor(one, static_shapes=True) for one in inputs])
            with tracing(TracingContext(mode)):
                call: Callable[..., Any] = compile_fx(trunk.graph, inputs)  # type: ignore[assignment]
    except torch._inductor.exc.InductorError as error:
        raise PreparationError(f"the forward of {count} rows does not compile: {error}") from error

    def run(tokens: torch.Tensor, positions: torch.Tensor, token_slots: torch.Tensor) -> torch.Tensor:
        given = {"tokens": tokens, "positions": positions, "token_slots": token_slots}
        with torch.no_grad():
            (hidden,) = call(*bind(trunk, given))
        assert isinstance(hidden, torch.Tensor)
        return hidden

    return run


class Described(fx.Interpreter):
    """Notes on each node what it holds, as the caches look for it."""

    def run_node(self, n: fx.Node) -> Any:
        """Run a node on tensors without content."""
        result = super().run_node(n)
        if isinstance(result, torch.Tensor):
            n.meta["example_value"] = result
        return result


def example_arguments(count: int, device: str) -> dict[str, torch.Tensor]:
    """Inputs of the right shapes; every row is padding."""
    return {
        "tokens": torch.zeros((1, count), dtype=torch.int64, device=device),
        "positions": torch.zeros((1, count), dtype=torch.int64, device=device),
        "token_slots": torch.full((count,), -1, dtype=torch.int64, device=device),
    }


def bind(trunk: TracedTrunk, given: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """A graph's inputs, of what a call gives and the model's own tensors."""
    return [given[one] if isinstance(one, str) else one for one in trunk.inputs]
