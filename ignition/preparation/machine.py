"""Machines in the preparing process: one runs programs as Python wrote them, one runs what was recorded."""

import ctypes
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ignition.components.state import ValueBuffers
from ignition.kernels.host import entries
from ignition.preparation.record import Node


class LocalMachine:
    """Memory is the session's; `programs` say how each name runs, `regions` are its rows and pages."""

    def __init__(
        self, buffers: ValueBuffers, programs: Mapping[str, Callable[[], None]], regions: Mapping[str, torch.Tensor]
    ) -> None:
        # torch has no NumPy twin for every type of the buffers, so bytes are what is exchanged.
        self._bytes = {name: tensor.view(-1).view(torch.uint8).numpy() for name, tensor in buffers.by_name().items()}
        self._programs = programs
        self._regions = regions

    def upload(self, source: str, values: NDArray[np.generic], *, offset_bytes: int = 0) -> None:
        """Copy values into a buffer."""
        content = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self._bytes[source][offset_bytes : offset_bytes + content.size] = content

    def launch(self, program: str) -> None:
        """Run a program to its end."""
        self._programs[program]()

    def read(self, source: str) -> bytes:
        """A buffer's bytes."""
        return self._bytes[source].tobytes()

    def region(self, name: str) -> bytes:
        """The bytes of the rows or pages that preparation backs."""
        return self._regions[name].numpy().tobytes()


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
