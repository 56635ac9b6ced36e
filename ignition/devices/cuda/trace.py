"""The trunk's graph, traced once over a symbolic count of rows and made static for each capacity.

Tracing many layers takes longer than anything that follows, and its result differs in the count alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from ignition.devices.example import EXAMPLE_TOKENS, Example
from ignition.errors import PreparationError

COUNT = "count"


@dataclass(frozen=True)
class TracedTrunk:
    """A graph, and for each of its inputs a fixed tensor or the name of what a call gives."""

    graph: fx.GraphModule
    inputs: list[torch.Tensor | str]

    def at(self, rows: int) -> "TracedTrunk":
        """The graph for one count of rows, which is no input any more."""
        graph = copy_of(self.graph)
        for node, name in zip(placeholders(graph), self.inputs, strict=True):
            if name == COUNT:
                node.replace_all_uses_with(rows)  # type: ignore[arg-type]
                graph.graph.erase_node(node)
        for node in graph.graph.nodes:
            node.meta.pop("example_value", None)  # Their shapes are symbolic.
        graph.recompile()
        return TracedTrunk(graph, [name for name in self.inputs if not isinstance(name, str) or name != COUNT])


def trace_trunk(trunk: nn.Module, *, hidden: int, device: str) -> TracedTrunk:
    """Trace; nothing runs. Raises `PreparationError` where the forward is not one graph."""
    example = Example.of(EXAMPLE_TOKENS, hidden, device=device)
    traced: list[TracedTrunk] = []

    def backend(graph: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        traced.append(TracedTrunk(graph, [example.name(one) for one in inputs]))
        return lambda *_: [example.hidden]

    torch._dynamo.reset()
    try:
        with torch.no_grad():
            torch.compile(trunk, backend=backend, fullgraph=True)(*example.arguments)
    except torch._dynamo.exc.Unsupported as error:
        raise PreparationError(f"the model's forward is not one graph: {error}") from error
    if len(traced) != 1:
        raise PreparationError(f"the model's forward traced into {len(traced)} graphs; it has to be one")
    return traced[0]


def placeholders(graph: fx.GraphModule) -> list[fx.Node]:
    """A graph's inputs in order."""
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def copy_of(graph: fx.GraphModule) -> fx.GraphModule:
    """A module whose nodes are its own."""
    copied = fx.Graph()
    copied.output(copied.graph_copy(graph.graph, {}))
    return fx.GraphModule(graph, copied)
