"""Packed weights: bf16 [ceil(N/16), ceil(K/2), 16, 2], lanes over outputs, as the host operators read them."""

import torch

from ignition.components.weights import Allocate
from ignition.kernels.host import entries

LANES = 16


class PackedWeight:
    """A weight of [rows, columns] in packed storage; a `WeightTarget`."""

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
