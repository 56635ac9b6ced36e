"""What canonical modules look like in a traced graph: norms, gated products, rotated attention."""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

flare = torch.ops.flare


@dataclass(frozen=True)
class Norm:
    """An RMSNorm: of what, with which gain."""

    x: fx.Node
    gain: fx.Node
    eps: float


def match_norm(node: fx.Node) -> Norm | None:
    """gain * (x32 * rsqrt(mean(x32^2) + eps)).to(bf16), where x32 is x in FP32."""
    if not is_call(node, operator.mul):
        return None
    for gain, rounded in orders(node.args):
        scaled = method_operand(rounded, "to", torch.bfloat16)
        if gain.op != "placeholder" or scaled is None or not is_call(scaled, operator.mul):
            continue
        for wide, scale in orders(scaled.args):
            x, eps = method_operand(wide, "to", torch.float32), _match_scale(scale, wide)
            if x is not None and eps is not None:
                return Norm(x, gain, eps)
    return None


def _match_scale(node: fx.Node, wide: fx.Node) -> float | None:
    """The eps of rsqrt(mean(wide^2, -1, keepdim=True) + eps)."""
    if not is_call(node, torch.rsqrt) or not is_call(node.args[0], operator.add):
        return None
    mean, eps = arguments_of(node.args[0])
    square = method_operand(mean, "mean", -1)
    is_square = square is not None and method_operand(square, "pow", 2) is wide
    return eps if is_square and isinstance(eps, float) and mean.kwargs == {"keepdim": True} else None


@dataclass(frozen=True)
class GatedProduct:
    """silu(gate) * up: its two projections in that order, and the product."""

    linears: tuple[fx.Node, fx.Node]
    output: fx.Node


def match_gate(linears: Sequence[fx.Node]) -> GatedProduct | None:
    """Two projections without bias of which one, through silu, multiplies the other, and nothing else reads them."""
    if len(linears) != 2 or any(len(node.users) != 1 or node.args[2] is not None for node in linears):
        return None
    for gate, up in orders(linears):
        (activation,), (output,) = gate.users, up.users
        if (
            is_call(activation, torch.nn.functional.silu)
            and is_call(output, operator.mul)
            and len(activation.users) == 1
            and set(output.args) == {activation, up}
        ):
            return GatedProduct((gate, up), output)
    return None


@dataclass(frozen=True)
class RotatedAttention:
    """Attention whose query and key are rotated parts of one projection, and whose value is the rest of it."""

    qkv: fx.Node
    cosines: fx.Node
    sines: fx.Node
    query_heads: int


def match_rotated_attention(attention: fx.Node, write: fx.Node) -> RotatedAttention | None:
    """Where both read one joined projection: the query's columns, then the key's, then the value's."""
    if write.args[2:] != (*attention.args[1:5], *attention.args[6:9]):
        return None
    query = match_rotation(_heads(attention.args[0]))
    key = match_rotation(_heads(write.args[0]))
    if query is None or key is None or query[1:] != key[1:]:
        return None
    first, second, third = (_columns(one) for one in (query[0], key[0], _heads(write.args[1])))
    if first is None or second is None or third is None:
        return None
    if (second.projection, second.start) != (first.projection, first.end) or first.start != 0:
        return None
    if (third.projection, third.start) != (first.projection, second.end):
        return None
    return RotatedAttention(first.projection, query[1], query[2], first.end // first.width)


def match_rotation(node: Any) -> tuple[fx.Node, fx.Node, fx.Node] | None:
    """x, cosines and sines of x * cos + cat(-x's second half, its first) * sin, both with a dimension for heads."""
    if not is_call(node, operator.add) or not all(is_call(one, operator.mul) for one in node.args):
        return None
    for straight, turned in orders(node.args):
        (x, cosines), (halves, sines) = arguments_of(straight), arguments_of(turned)
        cosines, sines = method_operand(cosines, "unsqueeze", 1), method_operand(sines, "unsqueeze", 1)
        if _is_half_turn(halves, x) and cosines is not None and sines is not None:
            return (x, cosines, sines)
    return None


def _is_half_turn(node: Any, x: Any) -> bool:
    """cat((-x[..., h:], x[..., :h]))."""
    if not is_call(node, torch.cat) or node.kwargs != {"dim": -1} or len(arguments_of(node)[0]) != 2:
        return False
    negated, first = arguments_of(node)[0]
    if not is_call(negated, operator.neg):
        return False
    head, tail = _sliced(first), _sliced(negated.args[0])
    if head is None or tail is None or head[0] is not x or tail[0] is not x:
        return False
    return head[1].start is None and tail[1].stop is None and head[1].stop == tail[1].start


def _sliced(node: Any) -> tuple[fx.Node, slice] | None:
    """A tensor and the slice of its last dimension."""
    if not is_call(node, operator.getitem):
        return None
    tensor, key = arguments_of(node)
    is_last = isinstance(key, tuple) and len(key) == 2 and key[0] is Ellipsis and isinstance(key[1], slice)
    return (tensor, key[1]) if is_last else None


def _heads(node: Any) -> fx.Node | None:
    """[1, heads, T, D] behind what attention hands over: [T, heads, D], contiguous."""
    turned = method_operand(node, "contiguous")
    one = method_operand(turned, "transpose", 0, 1)
    if one is None or not is_call(one, operator.getitem) or one.args[1] != 0:
        return None
    heads: fx.Node = arguments_of(one)[0]
    return heads


@dataclass(frozen=True)
class Columns:
    """Columns of a projection, and how wide a head of them is."""

    projection: fx.Node
    start: int
    end: int
    width: int


def _columns(node: Any) -> Columns | None:
    """What stands behind [1, heads, T, D]."""
    turned = method_operand(node, "transpose", 1, 2)
    if turned is None or turned.op != "call_method" or turned.target != "view":
        return None
    tensor, shape = arguments_of(turned)
    part = _sliced(tensor)
    if part is None or not isinstance(shape, tuple | list) or not isinstance(shape[-1], int):
        return None
    return Columns(part[0], part[1].start, part[1].stop, shape[-1])


def method_operand(node: Any, method: str, *arguments: Any) -> fx.Node | None:
    """What a method with these arguments was called on."""
    if not isinstance(node, fx.Node) or node.op != "call_method" or node.target != method:
        return None
    owner: fx.Node = arguments_of(node)[0]
    return owner if node.args[1:] == arguments else None


def arguments_of(node: Any) -> tuple[Any, ...]:
    """A node's positional arguments, of whatever types they are."""
    arguments: tuple[Any, ...] = node.args
    return arguments


def orders(operands: Sequence[Any]) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Two operands in both orders, where both are nodes."""
    if len(operands) == 2 and all(isinstance(one, fx.Node) for one in operands):
        yield (operands[0], operands[1])
        yield (operands[1], operands[0])


def is_call(node: Any, target: Callable[..., Any]) -> bool:
    """Whether a node calls a function."""
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target is target
