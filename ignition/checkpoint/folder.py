"""A folder as Transformers saves one: config.json, safetensors (one file or an index of shards),
tokenizer.json.

Rows are read with positioned reads rather than through a memory map, so the pages of the file never count as
this process's memory and the peak is what the target takes plus one block.
"""

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ignition.checkpoint.checkpoint import READ_BLOCK_BYTES, Checkpoint, TensorInfo
from ignition.errors import CheckpointError
from ignition.frontend.assets import FrontendAssets

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
HEADER_BYTES_MAX = 100 << 20  # The safetensors format's own limit.

TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
"""Stored types that convert to bf16 without a scale. Anything else is a quantized or integer tensor."""

ITEM_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
}


@dataclass(frozen=True)
class Span:
    """Where a tensor's bytes lie."""

    file: int  # File descriptor.
    offset: int
    info: TensorInfo


class FolderCheckpoint(Checkpoint):
    """A folder of safetensors. Raises `CheckpointError` for anything missing, truncated or unreadable."""

    def __init__(self, path: Path, *, name: str | None = None) -> None:
        self.files: list[int] = []
        try:
            self.config = read_json(path / "config.json")
            self.name = name or path.resolve().name
            self.spans = {tensor: span for shard in shards(path) for tensor, span in self.read_header(shard).items()}
            self.tensors = {tensor: span.info for tensor, span in self.spans.items()}
            self.frontend = FrontendAssets.from_folder(path, self.config)
        except BaseException:
            self.close()
            raise

    def read_rows(self, name: str, first: int, count: int) -> torch.Tensor:
        span = self.spans[name]
        dtype = TYPES.get(span.info.stored_type)
        if dtype is None:
            raise CheckpointError(
                f"tensor {name} is stored as {span.info.stored_type}, which has no plain bf16 value; "
                f"give an unquantized checkpoint"
            )
        shape = (count, *span.info.shape[1:])
        row_bytes = span.info.stored_bytes // max(1, span.info.rows)
        buffer = bytearray(count * row_bytes)
        read_exactly(span.file, buffer, span.offset + first * row_bytes, name)
        if not buffer:
            return torch.empty(shape, dtype=torch.bfloat16)
        return torch.frombuffer(buffer, dtype=dtype).view(shape).to(torch.bfloat16)

    def stored_blocks(self, name: str) -> Iterator[bytes]:
        span = self.spans[name]
        yield from read_blocks(span.file, span.offset, span.info.stored_bytes, name)

    def close(self) -> None:
        while self.files:
            os.close(self.files.pop())

    def read_header(self, path: Path) -> dict[str, Span]:
        """The tensor table of one safetensors file, each span checked against the file's size."""
        try:
            file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise CheckpointError(f"cannot open {path}: {error.strerror}") from error
        self.files.append(file)
        size = os.fstat(file).st_size
        length = struct.unpack("<Q", os.pread(file, 8, 0))[0] if size >= 8 else HEADER_BYTES_MAX + 1
        if length > min(HEADER_BYTES_MAX, size - 8):
            raise CheckpointError(f"{path} is not a safetensors file or is truncated; download it again")
        try:
            header = json.loads(os.pread(file, length, 8))
            header.pop("__metadata__", None)
            return {name: checked_span(file, 8 + length, size, name, entry) for name, entry in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, CheckpointError):
                raise CheckpointError(f"{path}: {error}") from error
            raise CheckpointError(f"{path} has a malformed safetensors header; download it again") from error


def checked_span(file: int, base: int, file_bytes: int, name: str, entry: dict[str, Any]) -> Span:
    """A header entry as a span inside the file whose length is what its type and shape take."""
    shape = tuple(int(size) for size in entry["shape"])
    begin, end = (int(offset) for offset in entry["data_offsets"])
    bytes_expected = ITEM_BYTES.get(entry["dtype"], 0)
    for size in shape:
        bytes_expected *= size
    if entry["dtype"] not in ITEM_BYTES:
        raise CheckpointError(f"tensor {name} has the unknown type {entry['dtype']}")
    if end - begin != bytes_expected or begin < 0 or base + end > file_bytes:
        raise CheckpointError(f"tensor {name} lies outside the file or does not fill its shape; download it again")
    return Span(file, base + begin, TensorInfo(shape, entry["dtype"], end - begin))


def shards(path: Path) -> list[Path]:
    """The safetensors files of a folder, through its index where there is one."""
    if (path / INDEX).is_file():
        index = read_json(path / INDEX).get("weight_map")
        if not isinstance(index, dict) or not all(isinstance(shard, str) for shard in index.values()):
            raise CheckpointError(f"{path / INDEX} has no weight_map")
        missing = sorted({shard for shard in index.values() if not (path / shard).is_file()})
        if missing:
            raise CheckpointError(f"{path} lacks {', '.join(missing)}, which {INDEX} names; download it again")
        return [path / shard for shard in sorted(set(index.values()))]
    if (path / SINGLE).is_file():
        return [path / SINGLE]
    raise CheckpointError(f"{path} holds neither {SINGLE} nor {INDEX}; give a folder that Transformers could load")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of the checkpoint."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path.parent} has no {path.name}; give a folder that Transformers could load"
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return value


def read_exactly(file: int, buffer: bytearray, offset: int, name: str) -> None:
    """Fill a buffer from a file, or say which tensor it ends in."""
    view, done = memoryview(buffer), 0
    while done < len(buffer):
        got = os.preadv(file, [view[done:]], offset + done)
        if got == 0:
            raise CheckpointError(f"the file ends inside tensor {name}; download it again")
        done += got


def read_blocks(file: int, offset: int, length: int, name: str) -> Iterator[bytes]:
    """A span's bytes by blocks."""
    for begin in range(0, length, READ_BLOCK_BYTES):
        buffer = bytearray(min(READ_BLOCK_BYTES, length - begin))
        read_exactly(file, buffer, offset + begin, name)
        yield bytes(buffer)
