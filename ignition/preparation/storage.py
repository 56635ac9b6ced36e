"""Regions at fixed virtual addresses, and where every tensor of a core lies in them.

Pointers that a program records are valid in the serving process because these addresses are the same there. A region is
reserved once and filled from its start. What is placed is never moved.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import Protocol

import torch

from ignition.errors import PreparationError

REGION_SPAN = 1 << 40
TENSOR_ALIGNMENT = 64
PAGE_BYTES = 4096


class Role(Enum):
    """What a region holds. Values are the contract's RegionRole."""

    WEIGHTS = 1
    IO = 2
    SCRATCH = 3
    ROWS = 4
    PAGES = 5


# Reservations cost no memory.
_RESERVED_BYTES = {
    Role.WEIGHTS: 1 << 39,
    Role.IO: 1 << 36,
    Role.SCRATCH: 1 << 36,
    Role.ROWS: 1 << 36,
    Role.PAGES: 1 << 38,
}


class Memory(Protocol):
    """A device's reserved range of addresses. What was never written is zero."""

    def view(self, offset: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor on its bytes, backed, which keeps them alive."""

    def blocks(self, size_bytes: int, block_bytes: int) -> Iterator[bytes | memoryview]:
        """The first `size_bytes`, by blocks."""

    def close(self) -> None:
        """Give the range back; raises while tensors on it are alive."""


@dataclass
class Region:
    """One reserved range. `tensors` says what was placed where, by name."""

    role: Role
    address: int
    reserved_bytes: int
    memory: Memory
    used_bytes: int = 0
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The region's name in the contract."""
        return self.role.name.lower()

    @property
    def size_bytes(self) -> int:
        """What is used, in whole pages."""
        return round_up(max(self.used_bytes, 1), PAGE_BYTES)

    def allocate(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A zero-filled tensor of its own at the next aligned address."""
        assert name not in self.tensors, f"{self.name} holds {name} already"
        offset = round_up(self.used_bytes, TENSOR_ALIGNMENT)
        size_bytes = prod(shape) * dtype.itemsize
        self.used_bytes = offset + size_bytes
        if self.used_bytes > self.reserved_bytes:
            raise PreparationError(
                f"{name} of {size_bytes} bytes does not fit the {self.name} region of {self.reserved_bytes} bytes"
            )
        tensor = self.memory.view(offset, shape, dtype)
        self.tensors[name] = tensor
        return tensor

    def joined(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """One tensor over placed ones that lie one after another, joined along their first dimension; else None."""
        first = tensors[0]
        end = first.data_ptr()
        for tensor in tensors:
            if tensor.data_ptr() != end or tensor.dtype != first.dtype or tensor.shape[1:] != first.shape[1:]:
                return None
            end += tensor.nbytes
        shape = (sum(tensor.shape[0] for tensor in tensors), *first.shape[1:])
        return self.memory.view(first.data_ptr() - self.address, shape, first.dtype)

    def reserve(self, size_bytes: int) -> None:
        """Count the first `size_bytes` as used, for a region whose content another owner lays out."""
        if size_bytes > self.reserved_bytes:
            raise PreparationError(f"the {self.name} region would need {size_bytes} of {self.reserved_bytes} bytes")
        self.used_bytes = max(self.used_bytes, size_bytes)

    def clear(self) -> None:
        """Zero what is used."""
        self.memory.view(0, (self.used_bytes,), torch.uint8).zero_()

    def contains(self, address: int) -> bool:
        """Whether an address lies in what is used."""
        return self.address <= address < self.address + self.size_bytes

    def close(self) -> None:
        """Give the range back; raises while tensors on it are alive."""
        self.tensors.clear()
        self.memory.close()


class Storage:
    """The five regions of a core in preparation, each a range that `reserve(address, bytes)` gives."""

    def __init__(self, reserve: Callable[[int, int], Memory], *, base: int) -> None:
        self.regions = [
            Region(role, address := base + index * REGION_SPAN, size, reserve(address, size))
            for index, (role, size) in enumerate(_RESERVED_BYTES.items())
        ]
        self.weights, self.io, self.scratch, self.rows, self.pages = self.regions

    def region_of(self, address: int) -> Region | None:
        """The region in which an address lies."""
        return next((region for region in self.regions if region.contains(address)), None)

    def close(self) -> None:
        """Give every range back."""
        for region in self.regions:
            region.close()


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple that is not below value."""
    return -(-value // multiple) * multiple
