"""The device's memory at fixed addresses, and how weights lie in it."""

from collections.abc import Iterator, Sequence
from math import prod

import torch
from flare_heliopause import CudaArena, HeliopauseError

from ignition.components.weights import MatrixTarget, PlainTarget
from ignition.errors import PreparationError
from ignition.preparation.storage import Region

CUDA_BASE = 0x2000_0000_0000


class CudaMemory:
    """A reserved range of device addresses; a `Memory`. It is backed as far as views reach."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.arena = CudaArena(address, size_bytes)

    def view(self, offset: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor that keeps the arena alive."""
        size_bytes = prod(shape) * dtype.itemsize
        try:
            self.arena.back(offset + size_bytes)
        except HeliopauseError as error:
            raise PreparationError(f"the device's memory does not hold the model and its state: {error}") from error
        flat = torch.as_tensor(self.arena.view(offset, size_bytes), device="cuda")
        return flat.view(dtype).view(tuple(shape))

    def blocks(self, size_bytes: int, block_bytes: int) -> Iterator[memoryview]:
        """The first bytes, copied to the host block by block."""
        for first in range(0, size_bytes, block_bytes):
            yield self.view(first, (min(block_bytes, size_bytes - first),), torch.uint8).cpu().numpy().data

    def close(self) -> None:
        """Give the range back; raises while tensors on it are alive."""
        self.arena.close()


class RowMajorStore:
    """Where weights lie on the device: as they are, matrices in the order in which they are placed."""

    def __init__(self, region: Region) -> None:
        self.allocate = region.allocate

    def matrix(self, name: str, rows: int, columns: int) -> MatrixTarget:
        """Storage for a matrix."""
        return PlainTarget(self.allocate(name, (rows, columns), torch.bfloat16))
