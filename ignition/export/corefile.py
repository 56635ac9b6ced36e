"""The bytes of a core file: safetensors, with storage first and page-aligned, and the digest in its metadata.

Payloads are written from where they lie, block by block; no second copy of the weights exists. Reading gives the parts
that are not storage.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ignition.digests import block_digests
from ignition.errors import PreparationError

FILE_NAME = "rank-0.safetensors"
FORMAT = "flare-core"
ALIGNMENT = 4096
BLOCK_BYTES = 16 << 20
HEADER_BYTES_MAX = 100 << 20


@dataclass(frozen=True)
class StoragePayload:
    """A region's content, given by blocks of `BLOCK_BYTES` as often as it is asked for."""

    size_bytes: int
    blocks: Callable[[], Iterable[bytes | memoryview]]


@dataclass(frozen=True)
class CoreParts:
    """Everything that goes into a file."""

    abi: int
    contract: bytes
    modules: list[bytes]
    storage: Mapping[str, StoragePayload]  # By region, each a multiple of 4096 bytes.
    tokenizer: bytes
    template: bytes

    def digest(self) -> str:
        """The digest that core.proto defines over everything but storage."""
        state = hashlib.sha256()
        for part in (self.contract, *self.modules, self.tokenizer, self.template):
            state.update(part)
        return state.hexdigest()

    def held(self) -> dict[str, bytes]:
        """What is not storage by tensor name, in the file's order; storage comes before it."""
        return {
            **{f"module.{index}": image for index, image in enumerate(self.modules)},
            "contract": self.contract,
            "frontend.tokenizer": self.tokenizer,
            "frontend.template": self.template,
        }

    def sizes(self) -> dict[str, int]:
        """Bytes of every tensor, in the file's order."""
        storage = {f"storage.{name}": payload.size_bytes for name, payload in self.storage.items()}
        return storage | {name: len(content) for name, content in self.held().items()}


def write_core_file(path: Path, parts: CoreParts) -> None:
    """Write a file and bring it to the disk. The caller renames it."""
    with path.open("wb") as file:
        file.write(encode_header(parts))
        for payload in parts.storage.values():
            for block in payload.blocks():
                file.write(block)
        for content in parts.held().values():
            file.write(content)
        file.flush()
        os.fsync(file.fileno())


def encode_header(parts: CoreParts) -> bytes:
    """The length and the JSON, padded with spaces so that the first payload is page-aligned."""
    table: dict[str, object] = {
        "__metadata__": {"format": FORMAT, "abi": str(parts.abi), "digest": parts.digest()},
    }
    offset = 0
    for name, size in parts.sizes().items():
        assert not name.startswith("storage.") or size % ALIGNMENT == 0, f"{name} is {size} bytes"
        table[name] = {"dtype": "U8", "shape": [size], "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def storage_digest(storage: Mapping[str, StoragePayload]) -> str:
    """SHA-256 in hex over the digests of every payload's blocks of `BLOCK_BYTES`, in region order."""
    return digest_of_payloads(payload.blocks() for payload in storage.values())


def digest_of_payloads(payloads: Iterable[Iterable[bytes | memoryview]]) -> str:
    """The storage digest, of payloads given by blocks."""
    state = hashlib.sha256()
    for blocks in payloads:
        for digest in block_digests(blocks):
            state.update(digest)
    return state.hexdigest()


class CoreReader:
    """An opened core file; tensors are read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        try:
            self._file: BinaryIO = self.path.open("rb")
        except OSError as error:
            raise PreparationError(f"{self.path} cannot be read ({error.strerror}); give a core folder") from error
        length = int.from_bytes(self._file.read(8), "little")
        try:
            if not 2 <= length <= HEADER_BYTES_MAX:
                raise ValueError(f"a header of {length} bytes")
            table = json.loads(self._file.read(length))
            self.metadata: dict[str, str] = table.pop("__metadata__")
            self._offsets = {name: tuple(entry["data_offsets"]) for name, entry in table.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._file.close()
            raise PreparationError(f"{self.path} is no core file: {error}") from error
        self._start = 8 + length
        if self.metadata.get("format") != FORMAT:
            self._file.close()
            raise PreparationError(f"{self.path} is a safetensors file, but not of format {FORMAT}")

    def names(self) -> list[str]:
        """The tensors' names."""
        return list(self._offsets)

    def size(self, name: str) -> int:
        """A tensor's bytes."""
        start, end = self._offsets[name]
        return int(end - start)

    def read(self, name: str) -> bytes:
        """A tensor's payload, whole. Raises `PreparationError` when it is missing or cut short."""
        return b"".join(self.read_blocks(name))

    def read_blocks(self, name: str) -> Iterator[bytes]:
        """A tensor's payload by blocks."""
        if name not in self._offsets:
            raise PreparationError(f"{self.path} has no tensor {name}")
        start, end = self._offsets[name]
        self._file.seek(self._start + start)
        for first in range(start, end, BLOCK_BYTES):
            block = self._file.read(min(BLOCK_BYTES, end - first))
            if not block:
                raise PreparationError(f"{self.path} ends inside {name}; it is truncated")
            yield block

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> "CoreReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def storage_digest_of(reader: CoreReader) -> str:
    """The storage digest of a file as it lies."""
    return digest_of_payloads(reader.read_blocks(name) for name in reader.names() if name.startswith("storage."))
