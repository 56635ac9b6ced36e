"""Heliopause: Helios' memory, loader and executor for Python."""

import os
from typing import Self, final

__all__ = ["Arena", "Core", "HeliopauseError"]

class HeliopauseError(RuntimeError):
    """Helios refused an operation; the message says what was wrong, where, and what to do."""

@final
class Arena:
    """Zero-filled memory at exactly `address`, as a writable buffer of bytes.

    Make tensors of slices: `torch.frombuffer(memoryview(arena)[start:end], dtype=...)`. The slice keeps
    the memory mapped for as long as the tensor lives; a tensor of the arena itself does not hold `close` back.
    """

    def __new__(cls, address: int, nbytes: int) -> Self:
        """Maps `nbytes` at `address`, both multiples of 4096.

        Raises `HeliopauseError` when the range is taken. Memory is backed as it is first touched.
        """

    @property
    def address(self) -> int:
        """The address of the first byte."""

    @property
    def nbytes(self) -> int:
        """The arena's size in bytes."""

    def close(self) -> None:
        """Gives the range back. Raises `HeliopauseError` while views of it are alive."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Core:
    """A finished core, mapped in this process and run one program at a time by Helios' own loader and executor.

    Buffers, programs and regions are named by their index in the contract or by their name: `"LANE_SLOTS"` (a
    `ValueSource` without its prefix), `"decode.4"`, `"rows"`. Every method raises `HeliopauseError` for what is not
    there or does not fit. The interpreter's lock is free while a method waits for the core.
    """

    def __new__(cls, path: str | os.PathLike[str], *, rows: int | None = None, pages: int | None = None) -> Self:
        """Loads the core in the folder `path` with `rows` rows and `pages` pages backed.

        By default as many as all slots take: null and live rows and one snapshot each, and pages for whole contexts.
        Raises `HeliopauseError` when the core is invalid, is for another machine, or its addresses are taken.
        """

    @property
    def rows(self) -> int:
        """Rows that are backed: null row, live rows, snapshot rows."""

    @property
    def pages(self) -> int:
        """Pages that are backed."""

    def programs(self) -> list[str]:
        """The programs' names, in the contract's order."""

    def buffers(self) -> list[tuple[str, str, list[int]]]:
        """Each buffer's source, element type (`"i64"`, `"f32"`, ...) and shape, in the contract's order."""

    def regions(self) -> list[tuple[str, int, int]]:
        """Each region's name, address and reserved bytes, in the contract's order."""

    def upload(self, buffer: int | str, offset_bytes: int, data: bytes | bytearray | memoryview) -> None:
        """Copies bytes into a buffer, before whatever is launched next."""

    def launch(self, program: int | str) -> None:
        """Runs a program and waits for its end."""

    def read(self, buffer: int | str, offset_bytes: int = 0, nbytes: int | None = None) -> bytes:
        """Bytes of a buffer, by default all from the offset on."""

    def read_region(self, region: int | str, offset_bytes: int, nbytes: int) -> bytes:
        """Bytes of a region's backed part."""

    def write_region(self, region: int | str, offset_bytes: int, data: bytes | bytearray | memoryview) -> None:
        """Overwrites bytes of a region's backed part; weights are read-only."""

    def close(self) -> None:
        """Unmaps the core. Closing twice is fine; using a closed core is an error."""
