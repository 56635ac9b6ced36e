"""Rewrites a traced trunk so that what surrounds a projection becomes part of it.

    one input, several projections      one projection of their joined weights, which lie one after another
    RMSNorm, then projections           norm_linear
    RMSNorm, gate and up, silu·mul      norm_gated
    rotation, kv_write, attention       rotary_attention
    projection, then residual           linear_add

Rounding stays where the canonical modules round. A pattern that is not found stays as it was traced: slower, not wrong.
What nobody reads any more is left out, which is most of the graph: compilers take their time for every node.
"""

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ignition.devices.cuda.patterns import is_call, match_gate, match_norm, match_rotated_attention
from ignition.devices.cuda.trace import TracedTrunk, placeholders
from ignition.kernels import ops

Join = Callable[[Sequence[torch.Tensor]], torch.Tensor | None]
"""One tensor over tensors that lie one after another, else None."""


def fuse(trunk: TracedTrunk, join: Join) -> Counter[str]:
    """Rewrite a trunk in place; how often each operator was put into it."""
    rewriter = Rewriter(trunk, join)
    groups: dict[fx.Node, list[fx.Node]] = {}
    for node in calls_of(trunk, ops.linear):
        groups.setdefault(node.args[0], []).append(node)  # type: ignore[arg-type]
    for x, linears in groups.items():
        rewriter.fuse_group(x, linears)
    for attention, write in zip(calls_of(trunk, ops.attention), calls_of(trunk, ops.kv_write), strict=True):
        rewriter.fuse_rotation(attention, write)
    for node in calls_of(trunk, ops.linear):
        rewriter.fuse_residual(node)
    trunk.graph.graph.eliminate_dead_code(has_effects)
    trunk.graph.recompile()
    return rewriter.counts


class Rewriter:
    """Changes one trunk's graph; joined weights become inputs of it."""

    def __init__(self, trunk: TracedTrunk, join: Join) -> None:
        self._trunk = trunk
        self._graph = trunk.graph.graph
        self._join = join
        self._tensors = dict(zip(placeholders(trunk.graph), trunk.inputs, strict=True))
        self.counts: Counter[str] = Counter()

    def fuse_group(self, x: fx.Node, linears: list[fx.Node]) -> None:
        """Projections of one input, and the norm that made it."""
        norm, product = match_norm(x), match_gate(linears)
        widths: list[Any] = [node.args[3] for node in linears]
        if norm is not None and product is not None:
            weight = self._joined([node.args[1] for node in product.linears])
            if weight is not None:
                arguments = (norm.x, norm.gain, norm.eps, weight, widths[0])
                self._replace(product.output, ops.norm_gated, arguments)
                return
        weight = self._joined([node.args[1] for node in linears])
        biases = [node.args[2] for node in linears]
        bias = self._joined(biases) if all(biases) else None
        if weight is None or (bias is None and any(biases)) or (norm is None and len(linears) == 1):
            return
        with self._graph.inserting_before(linears[0]):
            if norm is None:
                y = self._call(ops.linear, (x, weight, bias, sum(widths)))
            else:
                y = self._call(ops.norm_linear, (norm.x, norm.gain, norm.eps, weight, bias, sum(widths)))
            first = 0
            for node, width in zip(linears, widths, strict=True):
                columns: Any = (y, (Ellipsis, slice(first, first + width)))
                part = y if len(linears) == 1 else self._graph.call_function(operator.getitem, columns)
                first += width
                node.replace_all_uses_with(part)
        for node in linears:
            self._graph.erase_node(node)

    def fuse_rotation(self, attention: fx.Node, write: fx.Node) -> None:
        """Attention over what its own launch writes, of one projection that holds query, key and value."""
        found = match_rotated_attention(attention, write)
        if found is None:
            return
        _, *rows, pages, key_value_heads, page_stride, key_offset, value_offset, scale, window, context = attention.args
        arguments = (
            *(found.qkv, found.cosines, found.sines, *rows, pages, found.query_heads, key_value_heads),
            *(page_stride, key_offset, value_offset, scale, window, context),
        )
        self._replace(attention, ops.rotary_attention, arguments)
        self._graph.erase_node(write)

    def fuse_residual(self, linear: fx.Node) -> None:
        """A projection whose only reader adds it to a hidden state."""
        users = list(linear.users)
        if len(users) != 1 or not is_call(users[0], operator.add):
            return
        residual = next((one for one in users[0].args if one is not linear), None)
        if not isinstance(residual, fx.Node) or not is_hidden_state(residual):
            return
        x, weight, bias, width = linear.args
        self._replace(users[0], ops.linear_add, (x, weight, bias, residual, width))
        self._graph.erase_node(linear)

    def _replace(self, node: fx.Node, target: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        with self._graph.inserting_before(node):
            node.replace_all_uses_with(self._call(target, arguments))
        self._graph.erase_node(node)

    def _call(self, target: Callable[..., Any], arguments: tuple[Any, ...]) -> fx.Node:
        self.counts[str(target)] += 1
        return self._graph.call_function(target, arguments)

    def _joined(self, nodes: Sequence[Any]) -> fx.Node | None:
        """One input over inputs that lie one after another."""
        if len(nodes) == 1:
            return nodes[0] if isinstance(nodes[0], fx.Node) else None
        tensors = [self._tensors.get(node) for node in nodes]
        if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
            return None
        joined = self._join(tensors)  # type: ignore[arg-type]
        if joined is None:
            return None
        with self._graph.inserting_after(placeholders(self._trunk.graph)[-1]):
            node = self._graph.placeholder(f"joined_{len(self._trunk.inputs)}")
        self._trunk.inputs.append(joined)
        self._tensors[node] = joined
        return node


def calls_of(trunk: TracedTrunk, target: Callable[..., Any]) -> list[fx.Node]:
    """A trunk's calls of an operator, in order."""
    return [node for node in trunk.graph.graph.nodes if is_call(node, target)]


def has_effects(node: fx.Node) -> bool:
    """Whether a node does something beside giving its result: an operator or method that writes in place."""
    writes = isinstance(node.target, str) and node.target.endswith("_") and not node.target.endswith("__")
    return node.is_impure() or (node.op == "call_method" and writes) or is_call(node, operator.setitem)


def is_hidden_state(node: fx.Node) -> bool:
    """Whether a node is what residuals are: an embedding, a projection's result, or a sum of such."""
    return node.op == "call_function" and node.target in {ops.embedding, ops.linear, ops.linear_add, operator.add}
