"""Packed weights: bf16 [ceil(N/16), ceil(K/2), 16, 2], lanes over outputs, as the host operators read them."""

from collections.abc import Callable

import torch

from ignition.kernels.host import entries

LANES = 16

Allocate = Callable[[str, tuple[int, ...], torch.dtype], torch.Tensor]


class PackedMatrix:
    """A weight of [rows, columns] in packed storage."""

    def __init__(self, name: str, rows: int, columns: int, allocate: Allocate) -> None:
        self._rows, self._columns = rows, columns
        shape = (-(-rows // LANES), -(-columns // 2), LANES, 2)
        self.tensor = allocate(name, shape, torch.bfloat16)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns before packing."""
        return (self._rows, self._columns)

    def write(self, first_row: int, rows: torch.Tensor) -> None:
        """Pack rows; `first_row` is a multiple of 16, and so is their count unless they are the last."""
        count = rows.shape[0]
        assert first_row % LANES == 0 and (count % LANES == 0 or first_row + count == self._rows)
        source = rows.to(torch.bfloat16).contiguous()
        entries.call("flare_pack", source, self.tensor, self._rows, self._columns, first_row, count)


class PackedStore:
    """Where weights lie for the host: matrices packed, everything else as it is."""

    def __init__(self, allocate: Allocate) -> None:
        self.allocate = allocate

    def matrix(self, name: str, rows: int, columns: int) -> PackedMatrix:
        """Storage for a matrix."""
        return PackedMatrix(name, rows, columns, self.allocate)
