"""A GGUF file as a checkpoint: dequantized to bf16 by blocks of rows, in Transformers' names and row order."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from gguf.quants import dequantize

from ignition.checkpoint import gguf_names
from ignition.checkpoint.checkpoint import Checkpoint, TensorInfo
from ignition.checkpoint.folder import read_blocks, read_exactly
from ignition.checkpoint.gguf_header import StoredTensor, read_header
from ignition.checkpoint.gguf_tokenizer import frontend_assets
from ignition.errors import CheckpointError


class GgufCheckpoint(Checkpoint):
    """One `.gguf` file. Raises `CheckpointError` for a damaged file, `UnsupportedModelError` for a foreign
    one.

    `rope_freqs.weight` is not in the tensor table: it is a form of the configuration and is read as one.
    """

    def __init__(self, path: Path) -> None:
        header = read_header(path)
        self.file = os.open(path, os.O_RDONLY)
        try:
            factors = header.tensors.pop(gguf_names.ROPE_FACTORS, None)
            rope_factors = None if factors is None else self.dequantize_rows(factors, 0, factors.shape[0], "rope_freqs")
            # The quantization is the file's, not the core's: every weight is bf16 from here on.
            self.name = re.sub(r"[.-](I?Q\d\w*|F16|BF16|F32)$", "", path.stem, flags=re.IGNORECASE)
            self.config = gguf_names.configuration(header.metadata, header.tensors, rope_factors)
            self.architecture = header.metadata["general.architecture"]
            self.stored = {gguf_names.tensor_name(name): tensor for name, tensor in header.tensors.items()}
            self.tensors = {
                name: TensorInfo(tensor.shape, tensor.type.name, tensor.stored_bytes)
                for name, tensor in self.stored.items()
            }
            self.frontend = frontend_assets(header.metadata)
        except BaseException:
            self.close()
            raise

    def read_rows(self, name: str, first: int, count: int) -> torch.Tensor:
        tensor = self.stored[name]
        heads = gguf_names.interleaved_heads(self.architecture, name, self.config)
        if heads == 0 or count == 0:
            return as_bf16(self.dequantize_rows(tensor, first, count, name))
        if tensor.shape[0] % heads:
            raise CheckpointError(f"tensor {name} has {tensor.shape[0]} rows for {heads} heads")
        width = tensor.shape[0] // heads
        begin, end = first // width * width, -(-(first + count) // width) * width
        rows = self.dequantize_rows(tensor, begin, end - begin, name)
        # The file holds row j of a head's first half at 2j and of its second half at 2j + 1.
        pairs = rows.reshape(-1, width // 2, 2, *tensor.shape[1:])
        ordered = pairs.swapaxes(1, 2).reshape(rows.shape)
        return as_bf16(ordered[first - begin : first - begin + count])

    def stored_blocks(self, name: str) -> Iterator[bytes]:
        tensor = self.stored[name]
        yield from read_blocks(self.file, tensor.offset, tensor.stored_bytes, name)

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
        self.file = -1

    def dequantize_rows(self, tensor: StoredTensor, first: int, count: int, name: str) -> np.ndarray:
        """Rows as float32."""
        buffer = bytearray(count * tensor.row_bytes)
        read_exactly(self.file, buffer, tensor.offset + first * tensor.row_bytes, name)
        shape = (count, *tensor.shape[1:])
        data = np.frombuffer(buffer, dtype=np.uint8).reshape(count, tensor.row_bytes)
        try:
            return np.asarray(dequantize(data, tensor.type), dtype=np.float32).reshape(shape)
        except NotImplementedError as error:
            raise CheckpointError(
                f"tensor {name} is stored as {tensor.type.name}, which cannot be dequantized here; convert the file"
            ) from error


def as_bf16(values: np.ndarray) -> torch.Tensor:
    """float32 values rounded to nearest even."""
    return torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)
