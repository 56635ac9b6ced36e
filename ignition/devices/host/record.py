"""Records programs: one run of a program's function becomes its list of nodes.

While it runs, every entry is noted with its argument words, every allocation comes from the scratch arena, and every
other torch operator is an error: what is not recorded would be missing from the core. A node's addresses lie in the
five regions.
"""

import ctypes
import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ignition.devices.host.memory import HOST_BASE, HostMemory
from ignition.devices.host.scratch import ScratchArena
from ignition.errors import PreparationError
from ignition.kernels.host import entries
from ignition.preparation.storage import Storage

# Operators that only make another view of the same memory.
_VIEWS = frozenset(
    "alias as_strided detach expand permute select slice squeeze t transpose unsqueeze view _reshape_alias".split()
)


class UnrecordedOperatorError(PreparationError):
    """A program ran an operator that no entry stands for."""


@dataclass(frozen=True)
class Node:
    """One call: an entry and its argument words."""

    symbol: str
    arguments: tuple[int, ...]


class ProgramRecorder:
    """Collects nodes and owns the scratch arena that all programs share."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._arena = ScratchArena()
        self._nodes: list[Node] = []
        self._runs: Callable[[str], bool] = run_every

    def run(self, function: Callable[[], None], *, runs: Callable[[str], bool]) -> tuple[Node, ...]:
        """Run a program's function once; its nodes. A second run gives the same nodes.

        `runs` says of an entry whether its calls run or are only noted: addresses do not depend on what is in memory.
        """
        self._nodes = []
        self._runs = runs
        # A collection in the middle would end lifetimes at another point on each run.
        refuse = RefuseOtherOperators()  # type: ignore[no-untyped-call]
        with entries.recording(self), refuse, torch.no_grad(), without_collection():
            function()
        assert self._arena.live_bytes == 0, f"a program left {self._arena.live_bytes} bytes of scratch behind"
        return tuple(self._nodes)

    def call(self, symbol: str, arguments: tuple[int, ...]) -> None:
        """Note a call, and run it where this recording runs it."""
        for index, word in enumerate(arguments):
            if word >= HOST_BASE and word < 1 << 63 and not self._is_ours(word):
                raise PreparationError(
                    f"argument {index} of {symbol} is {word:#x}, which lies in no prepared region: a tensor that the "
                    "program uses was not placed"
                )
        self._nodes.append(Node(symbol, arguments))
        if self._runs(symbol):
            entries.library().run(symbol, arguments)

    def allocate(self, shape: Sequence[int], stride: Sequence[int] | None, dtype: torch.dtype) -> torch.Tensor:
        """Scratch memory that is free again when the last tensor on it dies."""
        elements = prod(shape)
        if stride is not None and elements > 0:
            elements = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        size_bytes = max(1, elements) * dtype.itemsize
        offset = self._arena.take(size_bytes)
        scratch = self._storage.scratch
        scratch.reserve(self._arena.peak_bytes)
        assert isinstance(scratch.memory, HostMemory)
        window = scratch.memory.window(offset, size_bytes)
        # torch holds the window for as long as any tensor shares the storage.
        weakref.finalize(window, self._arena.release, offset, size_bytes).atexit = False
        flat = torch.frombuffer(window, dtype=dtype)
        del window
        return flat.view(tuple(shape)) if stride is None else flat.as_strided(tuple(shape), tuple(stride))

    def _is_ours(self, address: int) -> bool:
        return self._storage.region_of(address) is not None


def replay(nodes: Sequence[Node]) -> Callable[[], None]:
    """A function that makes a program's recorded calls and nothing else."""
    calls: list[tuple[Callable[..., None], ctypes.Array[ctypes.c_uint64]]] = [
        (entries.library().entry(node.symbol), (ctypes.c_uint64 * len(node.arguments))(*node.arguments))
        for node in nodes
    ]

    def run() -> None:
        for entry, words in calls:
            entry(words)

    return run


def run_every(_: str) -> bool:
    """Run every entry."""
    return True


def run_none(_: str) -> bool:
    """Note calls alone."""
    return False


class RefuseOtherOperators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lets Flare's operators and views pass; any other operator is an error that names it."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        namespace, name = func.namespace, func.__name__.partition(".")[0]
        if namespace != "flare" and name not in _VIEWS:
            raise UnrecordedOperatorError(
                f"the compiled forward calls {namespace}::{func.__name__}, which has no prepared operator and cannot "
                "be recorded; replace it by a component in the recipe, or write it so that Inductor compiles it"
            )
        return func(*args, **(kwargs or {}))


@contextmanager
def without_collection() -> Iterator[None]:
    """Keep the cyclic garbage collector out."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
