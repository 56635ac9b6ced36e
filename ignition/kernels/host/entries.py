"""Calls of `void entry(void *const *args)` from Python, and the recorder that sees each of them.

While a recorder is active every call goes to it, with the very words that the entry receives, and every tensor that an
operator returns is allocated by it.
"""

import ctypes
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch

from ignition.kernels.host.build import Builder, detect_tier

Argument = torch.Tensor | int | float | None
_WORD = (1 << 64) - 1


class Recorder(Protocol):
    """Sees calls and owns allocations while a program is recorded."""

    def call(self, symbol: str, arguments: tuple[int, ...]) -> None:
        """A call with these words; whether it also runs is the recorder's choice."""

    def allocate(self, shape: Sequence[int], stride: Sequence[int] | None, dtype: torch.dtype) -> torch.Tensor:
        """Uninitialized memory in the prepared scratch region, free again when the last tensor on it dies."""


class EntryLibrary:
    """A loaded shared object of uniform entries."""

    def __init__(self, path: Path) -> None:
        # The OpenMP runtime reads it when the first library loads it. A team that spins longer between its short
        # regions starves whatever else runs; the server sets the same, so costs are measured as they will be.
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        self._library = ctypes.CDLL(str(path))
        self._entries: dict[str, Callable[..., None]] = {}

    def run(self, symbol: str, words: Sequence[int]) -> None:
        """Call an entry with argument words as they are."""
        self.entry(symbol)((ctypes.c_uint64 * len(words))(*words))

    def entry(self, symbol: str) -> Callable[..., None]:
        """An entry, to be called with an array of argument words."""
        entry = self._entries.get(symbol)
        if entry is None:
            entry = getattr(self._library, symbol)
            entry.restype = None
            self._entries[symbol] = entry
        return entry

    def measure_bytes(self, symbol: str, *sizes: int) -> int:
        """Call a size query: int64 arguments, an int64 result."""
        query = getattr(self._library, symbol)
        query.restype = ctypes.c_int64
        return int(query(*(ctypes.c_int64(size) for size in sizes)))


_library: EntryLibrary | None = None
_recorder: Recorder | None = None


def library() -> EntryLibrary:
    """The operators, built for this CPU on first use."""
    global _library
    if _library is None:
        builder = Builder(detect_tier())
        _library = EntryLibrary(builder.link(builder.operators()))
    return _library


def use(module: Path) -> None:
    """Run entries from a core's module, which holds the operators and more, from here on."""
    global _library
    _library = EntryLibrary(module)


def call(symbol: str, *arguments: Argument) -> None:
    """Run an entry; tensors pass as their addresses, floats in their low 32 bits, None as a null pointer."""
    call_words(symbol, tuple(to_word(argument) for argument in arguments))


def call_words(symbol: str, words: tuple[int, ...]) -> None:
    """Run an entry on argument words as they are, unless a recorder takes the call."""
    if _recorder is None:
        library().run(symbol, words)
    else:
        _recorder.call(symbol, words)


def allocate(shape: Sequence[int], dtype: torch.dtype, stride: Sequence[int] | None = None) -> torch.Tensor:
    """An operator's output: prepared scratch while recording, ordinary memory otherwise."""
    if _recorder is not None:
        return _recorder.allocate(shape, stride, dtype)
    if stride is None:
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.empty_strided(tuple(shape), tuple(stride), dtype=dtype)


def scratch(size_bytes: int) -> torch.Tensor:
    """Bytes that one call uses for itself."""
    return allocate((max(size_bytes, 64),), torch.uint8)


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Tell `recorder` of every call inside the block."""
    global _recorder
    assert _recorder is None, "recordings do not nest"
    _recorder = recorder
    try:
        yield
    finally:
        _recorder = None


def to_word(argument: Argument) -> int:
    """An argument as the 64 bits that an entry reads."""
    if argument is None:
        return 0
    if isinstance(argument, torch.Tensor):
        return argument.data_ptr()
    if isinstance(argument, float):
        return int.from_bytes(struct.pack("<f", argument), "little")
    return int(argument) & _WORD
