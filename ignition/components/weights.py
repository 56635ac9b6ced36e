"""Placing weights: a meta-device module tree gets its final storage, and a target for each canonical weight name.

A component decides how its weight lies in memory; any other parameter is stored as it is. Rows are written straight to
their place, so no second copy of a weight exists.
"""

from typing import Protocol, runtime_checkable

import torch
from torch import nn

from ignition.errors import PreparationError


@runtime_checkable
class WeightTarget(Protocol):
    """A place in final storage that takes a tensor by rows."""

    @property
    def shape(self) -> tuple[int, ...]:
        """What the tensor must be shaped like."""

    def write(self, first_row: int, rows: torch.Tensor) -> None:
        """Place bf16 rows from `first_row`, a multiple of 64; their count is one too, but for the last rows."""


class MatrixTarget(WeightTarget, Protocol):
    """A matrix as the device's operators read it."""

    tensor: torch.Tensor


class WeightStore(Protocol):
    """Where a device keeps weights, and how a matrix lies there."""

    def allocate(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A zero-filled tensor of its own in the weights region."""

    def matrix(self, name: str, rows: int, columns: int) -> MatrixTarget:
        """Storage for a bf16 matrix of [rows, columns], laid out by the device."""


@runtime_checkable
class WeightedComponent(Protocol):
    """A module that lays its own weights out."""

    def place(self, prefix: str, store: WeightStore) -> dict[str, WeightTarget]:
        """Take storage; give the targets by canonical name under this module."""


class PlainTarget:
    """A tensor stored as it is."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's own shape."""
        return tuple(self.tensor.shape)

    def write(self, first_row: int, rows: torch.Tensor) -> None:
        """Copy rows."""
        self.tensor[first_row : first_row + rows.shape[0]].copy_(rows)


def place_weights(module: nn.Module, store: WeightStore, prefix: str = "") -> dict[str, WeightTarget]:
    """Give every weight of a module tree its storage; targets by canonical state-dict name.

    Components place themselves. Parameters become plain tensors of their own type. Buffers move as they are: the recipe
    has computed them, so one still on the meta device is a `PreparationError` that names it.
    """
    if isinstance(module, WeightedComponent):
        return module.place(prefix, store)
    targets: dict[str, WeightTarget] = {}
    for name, parameter in list(module.named_parameters(recurse=False)):
        stored = store.allocate(prefix + name, tuple(parameter.shape), parameter.dtype)
        setattr(module, name, nn.Parameter(stored, requires_grad=False))
        targets[prefix + name] = PlainTarget(stored)
    for name, buffer in list(module.named_buffers(recurse=False)):
        if buffer.is_meta:
            raise PreparationError(
                f"buffer {prefix}{name} is on the meta device; the recipe has to compute it before weights are placed"
            )
        stored = store.allocate(prefix + name, tuple(buffer.shape), buffer.dtype)
        setattr(module, name, stored.copy_(buffer))
    for name, child in module.named_children():
        targets.update(place_weights(child, store, f"{prefix}{name}."))
    return targets
