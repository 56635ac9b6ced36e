"""The direct weight loader: every checkpoint tensor to its place in final storage, by blocks of rows.

A recipe's mapping accounts for every tensor. What the mapping wants and the checkpoint lacks, what the
checkpoint holds and the mapping does not name, and every shape that differs are errors before the first byte
is read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch

from ignition.checkpoint.checkpoint import READ_BLOCK_BYTES, Checkpoint
from ignition.errors import CheckpointError

ROW_ALIGNMENT = 64
"""A block's first row is a multiple of this, so packed layouts and whole heads begin with a block."""

NAMED_MAX = 8
"""Names that one message lists."""


class RowTarget(Protocol):
    """A place in final storage that takes a tensor by rows."""

    @property
    def shape(self) -> tuple[int, ...]:
        """What the tensor must be shaped like."""

    def write(self, first_row: int, rows: torch.Tensor) -> None:
        """Place bf16 rows that begin at `first_row`, a multiple of 64. Rows arrive in order, each once."""


@dataclass(frozen=True)
class WeightMapping:
    """Where each checkpoint tensor goes, and which ones a checkpoint may hold for nothing, and why."""

    targets: Mapping[str, RowTarget]
    ignored: Mapping[str, str] = field(default_factory=dict)


def load_weights(
    checkpoint: Checkpoint, mapping: WeightMapping, *, advance: Callable[[int], None] = lambda _: None
) -> None:
    """Write every tensor to its target. `advance` is told the stored bytes of each tensor when it is placed.

    Raises `CheckpointError` that names the missing, unexpected or wrong-shaped tensors.
    """
    check_mapping(checkpoint, mapping)
    for name, target in mapping.targets.items():
        row_elements = 1
        for size in target.shape[1:]:
            row_elements *= size
        block = max(1, READ_BLOCK_BYTES // (2 * row_elements * ROW_ALIGNMENT)) * ROW_ALIGNMENT
        for first in range(0, target.shape[0], block):
            target.write(first, checkpoint.read_rows(name, first, min(block, target.shape[0] - first)))
        advance(checkpoint.tensors[name].stored_bytes)


def check_mapping(checkpoint: Checkpoint, mapping: WeightMapping) -> None:
    """Hold the mapping against the checkpoint's tensor table."""
    held = set(checkpoint.tensors)
    missing = sorted(set(mapping.targets) - held)
    if missing:
        raise CheckpointError(f"the checkpoint lacks {listed(missing)}; it is incomplete or of another architecture")
    extra = sorted(held - set(mapping.targets) - set(mapping.ignored))
    if extra:
        raise CheckpointError(
            f"the checkpoint holds {listed(extra)}, which the recipe for "
            f"{(checkpoint.config.get('architectures') or ['?'])[0]} does not use; its values would be lost"
        )
    for name, target in mapping.targets.items():
        shape = checkpoint.tensors[name].shape
        if shape != tuple(target.shape):
            raise CheckpointError(
                f"tensor {name} has shape {list(shape)} in the checkpoint, but the configuration makes it "
                f"{list(target.shape)}; config.json and the weights are of different models"
            )


def listed(names: list[str]) -> str:
    """Names for a message: all of a few, the first of many."""
    rest = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ("tensor " if len(names) == 1 else f"{len(names)} tensors: ") + ", ".join(names[:NAMED_MAX]) + rest
