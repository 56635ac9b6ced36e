"""What a checkpoint is to the rest of Ignition, whatever file format it came in.

A checkpoint is a configuration, a table of tensors named as Transformers names them, and the frontend's
assets. Values are read by blocks of rows and converted on the way, so a tensor is never held twice; the whole
model is never in memory outside its final storage. A checkpoint never knows a model: which tensor goes where
is the recipe's mapping.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ignition.digests import block_digests
from ignition.frontend.assets import FrontendAssets

READ_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class TensorInfo:
    """One stored tensor: its shape as Transformers lays it out, and what the file holds for it."""

    shape: tuple[int, ...]
    stored_type: str  # The file's own word: "BF16", "Q4_1", ...
    stored_bytes: int

    @property
    def rows(self) -> int:
        """Elements of the first dimension."""
        return self.shape[0]


class Checkpoint(ABC):
    """An opened checkpoint. Closing it ends every read."""

    name: str  # What a person calls the model.
    config: Mapping[str, Any]  # A Hugging Face configuration.
    tensors: Mapping[str, TensorInfo]
    frontend: FrontendAssets

    @abstractmethod
    def read_rows(self, name: str, first: int, count: int) -> torch.Tensor:
        """Rows `first` to `first + count` of a tensor as a fresh bf16 tensor of `[count, *shape[1:]]`."""

    @abstractmethod
    def stored_blocks(self, name: str) -> Iterator[bytes]:
        """The bytes that the file holds for a tensor, in order, by blocks of at most `READ_BLOCK_BYTES`."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the files."""

    @property
    def stored_bytes(self) -> int:
        """Bytes that the files hold for all tensors together."""
        return sum(info.stored_bytes for info in self.tensors.values())

    def fingerprint(self) -> str:
        """SHA-256 in hex over the configuration, and every tensor's name, type, shape and blocks' digests."""
        digest = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode())
        for name, info in sorted(self.tensors.items()):
            digest.update(f"\0{name}\0{info.stored_type}\0{list(info.shape)}\0".encode())
            for one in block_digests(self.stored_blocks(name)):
                digest.update(one)
        return digest.hexdigest()
