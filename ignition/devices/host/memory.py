"""The host's memory at fixed addresses: backed as it is first touched."""

from collections.abc import Iterator, Sequence
from math import prod

import torch
from flare_heliopause import Arena

HOST_BASE = 0x1000_0000_0000


class HostMemory:
    """A reserved range; a `Memory`."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self._arena = Arena(address, size_bytes)
        self._whole = memoryview(self._arena)

    def view(self, offset: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor that holds a memoryview of just its bytes, and through it the arena."""
        return torch.frombuffer(self.window(offset, prod(shape) * dtype.itemsize), dtype=dtype).view(tuple(shape))

    def window(self, offset: int, size_bytes: int) -> memoryview:
        """A fresh memoryview of `size_bytes` at `offset`."""
        return self._whole[offset : offset + size_bytes]

    def blocks(self, size_bytes: int, block_bytes: int) -> Iterator[memoryview]:
        """The first bytes where they lie; nothing is copied."""
        for first in range(0, size_bytes, block_bytes):
            yield self.window(first, min(block_bytes, size_bytes - first))

    def close(self) -> None:
        """Give the range back; raises while tensors on it are alive."""
        self._whole.release()
        self._arena.close()
