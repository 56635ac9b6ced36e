"""Reads a GGUF file's header: its metadata and where each tensor lies.

Written for one pass over a memory map, since the reference reader makes an array object of every vocabulary
entry and takes seconds. Every length is checked against the file before it is used.
"""

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from ignition.errors import CheckpointError

ALIGNMENT_DEFAULT = 32
SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of the file. `shape` is row-major: the file's dimensions reversed."""

    type: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int  # From the start of the file.
    row_bytes: int  # Of one element of the first dimension.

    @property
    def stored_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.shape[0] * self.row_bytes


@dataclass(frozen=True)
class Header:
    """A GGUF file's metadata by key, and its tensors by the file's own names."""

    metadata: dict[str, Any]
    tensors: dict[str, StoredTensor]


def read_header(path: Path) -> Header:
    """Parse a file's header. Raises `CheckpointError` for anything that is not a whole GGUF file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return parse(data, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise CheckpointError(f"cannot open {path}: {error.strerror}") from error
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (ValueError, struct.error, OverflowError) as error:
        raise CheckpointError(f"{path} is not a GGUF file or is truncated; download it again") from error


class Cursor:
    """A position in the header."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def scalar(self, form: str) -> Any:
        """One little-endian value."""
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        # A float32 is taken at its shortest decimal form: 1e-05, not 9.999999747378752e-06.
        return float(str(np.float32(value))) if form == "<f" else value

    def text(self) -> str:
        """A length-prefixed UTF-8 text."""
        length = self.scalar("<Q")
        if self.at + length > len(self.data):
            raise ValueError("text beyond the file")
        self.at += length
        return self.data[self.at - length : self.at].decode("utf-8")

    def value(self, kind: int) -> Any:
        """A value of a metadata type."""
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            item, count = self.scalar("<I"), self.scalar("<Q")
            if count > len(self.data):
                raise ValueError("array beyond the file")
            return [self.value(item) for _ in range(count)]
        if kind not in SCALARS:
            raise ValueError("unknown metadata type")
        return self.scalar(SCALARS[kind])


def parse(data: mmap.mmap, file_bytes: int) -> Header:
    """The header of a mapped file."""
    cursor = Cursor(data)
    if data[:4] != b"GGUF":
        raise CheckpointError("not a GGUF file")
    cursor.at = 4
    version = cursor.scalar("<I")
    if version not in (2, 3):
        raise CheckpointError(f"GGUF version {version} is not readable; versions 2 and 3 are")
    tensor_count, key_count = cursor.scalar("<Q"), cursor.scalar("<Q")
    metadata = {}
    for _ in range(key_count):
        key = cursor.text()
        metadata[key] = cursor.value(cursor.scalar("<I"))
    entries = [read_entry(cursor) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", ALIGNMENT_DEFAULT)
    base = -(-cursor.at // alignment) * alignment
    tensors = {name: place(name, shape, kind, base + offset, file_bytes) for name, shape, kind, offset in entries}
    return Header(metadata, tensors)


def read_entry(cursor: Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """One line of the tensor table: name, row-major shape, type, offset into the data."""
    name = cursor.text()
    dimensions = [cursor.scalar("<Q") for _ in range(cursor.scalar("<I"))]
    return name, tuple(reversed(dimensions)), cursor.scalar("<I"), cursor.scalar("<Q")


def place(name: str, shape: tuple[int, ...], kind: int, offset: int, file_bytes: int) -> StoredTensor:
    """A table entry as a tensor that lies inside the file."""
    try:
        stored_type = GGMLQuantizationType(kind)
    except ValueError as error:
        raise CheckpointError(f"tensor {name} has the unknown type {kind}; upgrade gguf or convert the file") from error
    block, block_bytes = GGML_QUANT_SIZES[stored_type]
    elements = 1
    for size in shape[1:]:
        elements *= size
    if not shape or elements % block:
        raise CheckpointError(f"tensor {name} of shape {list(shape)} cannot be stored by rows as {stored_type.name}")
    tensor = StoredTensor(stored_type, shape, offset, elements // block * block_bytes)
    if offset + tensor.stored_bytes > file_bytes:
        raise CheckpointError(f"the file ends inside tensor {name}; download it again")
    return tensor
