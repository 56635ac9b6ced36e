"""Compiles the trunk once, over a symbolic count of tokens.

Every capacity runs the same Inductor kernels with another count, so a row's bits cannot depend on the capacity, and the
price of compiling is paid once. Inductor's callable is used without Dynamo's and AOTAutograd's wrappers: their guards
would specialize a count of one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.output_code import CompiledFxGraph

from ignition.devices.example import EXAMPLE_TOKENS, Example
from ignition.devices.host.inductor import KernelCollector, collecting, wrapper_call
from ignition.errors import PreparationError
from ignition.kernels.host.build import IsaTier


@dataclass(frozen=True)
class CompiledTrunk:
    """`trunk(tokens i64[1, T], positions i64[1, T], token_slots i64[T])` for any T of at least 1."""

    call: Callable[[list[Any]], Any]
    inputs: tuple[torch.Tensor | str, ...]  # A fixed tensor, or the name of what a call gives.
    kernels: KernelCollector

    def __call__(self, tokens: torch.Tensor, positions: torch.Tensor, token_slots: torch.Tensor) -> torch.Tensor:
        given = {"tokens": tokens, "positions": positions, "token_slots": token_slots, "count": tokens.shape[1]}
        (hidden,) = self.call([given[one] if isinstance(one, str) else one for one in self.inputs])
        assert isinstance(hidden, torch.Tensor)
        return hidden


def compile_trunk(trunk: nn.Module, *, hidden: int, tier: IsaTier) -> CompiledTrunk:
    """Trace and compile the trunk; nothing runs. Raises `PreparationError` where the forward is not one graph."""
    collector = KernelCollector()
    example = Example.of(EXAMPLE_TOKENS, hidden, device="cpu")
    graphs: list[CompiledFxGraph] = []
    inputs: list[tuple[torch.Tensor | str, ...]] = []

    def inner(graph: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[[list[Any]], Any]:
        compiled = compile_fx_inner(graph, example_inputs, **options)
        assert isinstance(compiled, CompiledFxGraph)
        graphs.append(compiled)

        def first_call(arguments: list[Any]) -> list[torch.Tensor]:
            inputs.append(tuple(example.name(argument) for argument in arguments))
            return [example.hidden]

        first_call._boxed_call = True  # type: ignore[attr-defined]
        return first_call

    def backend(graph: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        return compile_fx(graph, example_inputs, inner_compile=inner)  # type: ignore[arg-type]

    torch._dynamo.reset()
    try:
        with torch.no_grad(), collecting(collector, tier):
            torch.compile(trunk, backend=backend, fullgraph=True)(*example.arguments)
    except torch._dynamo.exc.Unsupported as error:
        raise PreparationError(f"the model's forward is not one graph: {error}") from error
    if len(graphs) != 1 or len(inputs) != 1:
        raise PreparationError(f"the model's forward compiled into {len(graphs)} graphs; it has to be one")
    return CompiledTrunk(wrapper_call(graphs[0]), inputs[0], collector)
