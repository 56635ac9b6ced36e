"""Compiles the trunk for every capacity, with static shapes.

Operators of ours are called as they are; what stands between them is compiled by Inductor part by part, but for parts
that only look at memory in another way. Most of a fused trunk are operators, so little is left to compile, and torch's
caches keep that for the next preparation.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch import fx, nn
from torch._guards import TracingContext, tracing
from torch._inductor.compile_fx import compile_fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.passes.split_module import split_module

from ignition.devices.cuda.fuse import Join, fuse
from ignition.devices.cuda.trace import TracedTrunk, placeholders, trace_trunk
from ignition.errors import PreparationError

_SETTINGS = {
    # Fused kernels round where eager BF16 rounds.
    "emulate_precision_casts": True,
    "size_asserts": False,
    "freezing": False,
    "max_autotune": False,
    # Graphs are captured by us.
    "triton.cudagraphs": False,
}

VIEWS = {"getitem", "view", "reshape", "transpose", "unsqueeze", "contiguous"}
"""Functions and methods of tensors that launch at most a copy."""


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
    with torch.no_grad(), mode:
        Described(trunk.graph).run(*[mode.from_tensor(one, static_shapes=True) for one in inputs])
    call = split_module(trunk.graph, trunk.graph, Parts(), keep_original_order=True)
    try:
        for name, part in list(call.named_children()):
            if computes(part):
                delattr(call, name)
                setattr(call, name, compile_part(part, mode))
    except torch._inductor.exc.InductorError as error:
        raise PreparationError(f"the forward of {count} rows does not compile: {error}") from error

    def run(tokens: torch.Tensor, positions: torch.Tensor, token_slots: torch.Tensor) -> torch.Tensor:
        given = {"tokens": tokens, "positions": positions, "token_slots": token_slots}
        with torch.no_grad():
            (hidden,) = call(*bind(trunk, given))
        assert isinstance(hidden, torch.Tensor)
        return hidden

    return run


class Parts:
    """The number of each node's part, in the graph's order: an operator of ours is a part of its own."""

    def __init__(self) -> None:
        self._number = 0
        self._after_operator = False

    def __call__(self, node: fx.Node) -> int:
        """Called once for each node."""
        if is_operator(node) or self._after_operator:
            self._number += 1
        self._after_operator = is_operator(node)
        return self._number


def computes(part: nn.Module) -> bool:
    """Whether a part does more than to call an operator of ours or to look at memory in another way."""
    assert isinstance(part, fx.GraphModule)
    calls = [node for node in part.graph.nodes if node.op.startswith("call_")]
    return not all(is_operator(node) or getattr(node.target, "__name__", node.target) in VIEWS for node in calls)


def is_operator(node: fx.Node) -> bool:
    """Whether a node calls an operator of ours."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "flare"


def compile_part(part: nn.Module, mode: FakeTensorMode) -> Callable[..., Any]:
    """A part as Inductor makes it, on inputs like those that its placeholders describe."""
    assert isinstance(part, fx.GraphModule)
    inputs = [node.meta["example_value"] for node in placeholders(part)]
    with torch.no_grad(), inductor_config.patch(_SETTINGS), tracing(TracingContext(mode)):
        compiled: Callable[..., Any] = compile_fx(part, inputs)  # type: ignore[assignment]
    return compiled


class Described(fx.Interpreter):
    """Notes on each node what it holds, as compiling its part and the caches look for it."""

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
