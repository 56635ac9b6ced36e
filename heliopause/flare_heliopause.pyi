"""Heliopause: Helios' memory, loader and executor for Python."""

from typing import final

class HeliopauseError(RuntimeError):
    """Helios refused an operation; the message says what was wrong, where, and what to do."""

@final
class Arena:
    """Zero-filled memory at exactly `address`, as a writable buffer of bytes.

    Make tensors of slices: `torch.frombuffer(memoryview(arena)[start:end], dtype=...)`. The slice keeps
    the memory mapped for as long as the tensor lives; a tensor of the arena itself does not hold `close` back.
    """

    def __init__(self, address: int, nbytes: int) -> None:
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
