"""A machine in the preparing process: the session's memory, and programs that run however they are given."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from ignition.components.state import ValueBuffers


class LocalMachine:
    """Memory is the session's; `programs` say how each name runs, `regions` are its rows and pages."""

    def __init__(
        self, buffers: ValueBuffers, programs: Mapping[str, Callable[[], None]], regions: Mapping[str, torch.Tensor]
    ) -> None:
        # torch has no NumPy twin for every type of the buffers, so bytes are what is exchanged.
        self._bytes = {name: tensor.view(-1).view(torch.uint8) for name, tensor in buffers.by_name().items()}
        self._programs = programs
        self._regions = regions

    def upload(self, source: str, values: NDArray[np.generic], *, offset_bytes: int = 0) -> None:
        """Copy values into a buffer."""
        content = torch.from_numpy(np.ascontiguousarray(values).reshape(-1).view(np.uint8).copy())
        self._bytes[source][offset_bytes : offset_bytes + content.numel()].copy_(content)

    def launch(self, program: str) -> None:
        """Run a program; what is read afterwards is what it left."""
        self._programs[program]()

    def read(self, source: str) -> bytes:
        """A buffer's bytes."""
        return self._bytes[source].cpu().numpy().tobytes()

    def region(self, name: str) -> bytes:
        """The bytes of the rows or pages that preparation backs."""
        return self._regions[name].cpu().numpy().tobytes()
