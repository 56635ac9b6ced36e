"""Captured graphs in the contract's words: one table of kernels and modules for all programs.

Heliopause gives each graph as encoded messages whose kernels count for themselves, and every module that the process
loaded. Here equal functions become one kernel, and modules that no kernel needs stay out.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Protocol

from ignition.devices.device import EncodedPrograms
from ignition.export import core_pb2

WORD_BYTES = 8


class CapturedGraph(Protocol):
    """As Heliopause reads it: encoded `Kernel`, `Node` and `Edge` messages."""

    @property
    def kernels(self) -> list[bytes]:
        """`module` is an index into the recorded images."""

    @property
    def nodes(self) -> list[bytes]:
        """A launch's `kernel` is an index into `kernels`."""

    @property
    def edges(self) -> list[bytes]:
        """Between `nodes`."""


def addresses_in(graph: CapturedGraph) -> frozenset[int]:
    """Every word of a graph that may be an address: operands of copies and fills, and parameters' aligned words."""
    return frozenset(word for node in map(core_pb2.Node.FromString, graph.nodes) for word in words_of(node))


def words_of(node: core_pb2.Node) -> Iterator[int]:
    """A node's possible addresses."""
    action = node.WhichOneof("action")
    if action == "copy":
        yield from (node.copy.destination, node.copy.source)
    elif action == "fill":
        yield node.fill.destination
    else:
        offset = 0
        for size in node.launch.parameter_bytes:
            parameter = node.launch.parameters[offset : offset + size]
            offset += size
            for first in range(0, size - WORD_BYTES + 1, WORD_BYTES):
                yield int.from_bytes(parameter[first : first + WORD_BYTES], "little")


def encode_graphs(graphs: Sequence[CapturedGraph], images: Sequence[bytes]) -> EncodedPrograms:
    """All graphs over one table. A function that was set differently in two captures keeps what serves both."""
    table = KernelTable(images)
    nodes: list[list[core_pb2.Node]] = []
    for graph in graphs:
        kernels = [table.add(core_pb2.Kernel.FromString(kernel)) for kernel in graph.kernels]
        messages = [core_pb2.Node.FromString(node) for node in graph.nodes]
        for message in messages:
            if message.WhichOneof("action") == "launch":
                message.kernel = kernels[message.kernel]
        nodes.append(messages)
    return EncodedPrograms(
        modules=[core_pb2.Module(name=name, format=core_pb2.MODULE_FORMAT_CUBIN) for name in table.names],
        images=table.images,
        kernels=table.kernels,
        nodes=nodes,
        edges=[[core_pb2.Edge.FromString(edge) for edge in graph.edges] for graph in graphs],
    )


class KernelTable:
    """Kernels by module and symbol, and the modules that they need, by content."""

    def __init__(self, recorded: Sequence[bytes]) -> None:
        self._recorded = recorded
        self._modules: dict[str, int] = {}
        self._indices: dict[tuple[int, str], int] = {}
        self.names: list[str] = []
        self.images: list[bytes] = []
        self.kernels: list[core_pb2.Kernel] = []

    def add(self, kernel: core_pb2.Kernel) -> int:
        """The index of a graph's kernel in the table."""
        module = self._module(kernel.module)
        index = self._indices.setdefault((module, kernel.symbol), len(self.kernels))
        if index == len(self.kernels):
            self.kernels.append(kernel)
            kernel.module = module
            return index
        held = self.kernels[index]
        held.max_dynamic_shared_bytes = max(held.max_dynamic_shared_bytes, kernel.max_dynamic_shared_bytes)
        held.non_portable_cluster |= kernel.non_portable_cluster
        if kernel.HasField("preferred_carveout"):
            held.preferred_carveout = max(held.preferred_carveout, kernel.preferred_carveout)
        return index

    def _module(self, recorded: int) -> int:
        image = self._recorded[recorded]
        digest = hashlib.sha256(image).hexdigest()
        if digest not in self._modules:
            self._modules[digest] = len(self.images)
            self.names.append(digest[:16])
            self.images.append(image)
        return self._modules[digest]
