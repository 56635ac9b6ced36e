"""The scratch arena: memory whose lifetimes end within a program, reused by everything that runs after.

Programs run one after another, so one arena serves all of them, and its extent is the peak of the largest. Offsets
depend on the order of takes and releases alone: recording a program again gives the same addresses.
"""

from bisect import insort

ALIGNMENT_BYTES = 64


class ScratchArena:
    """First-fit over free ranges, which are sorted, disjoint and never adjacent."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int]] = []  # (start, end)
        self._top = 0
        self.live_bytes = 0
        self.peak_bytes = 0

    def take(self, size_bytes: int) -> int:
        """The offset of `size_bytes` free bytes, a multiple of 64."""
        size = self._rounded(size_bytes)
        self.live_bytes += size
        for index, (start, end) in enumerate(self._free):
            if end - start >= size:
                self._free[index : index + 1] = [(start + size, end)] if end - start > size else []
                return start
        start = self._top
        self._top += size
        self.peak_bytes = max(self.peak_bytes, self._top)
        return start

    def release(self, offset: int, size_bytes: int) -> None:
        """Give a taken range back."""
        size = self._rounded(size_bytes)
        self.live_bytes -= size
        insort(self._free, (offset, offset + size))
        merged: list[tuple[int, int]] = []
        for start, end in self._free:
            assert not merged or merged[-1][1] <= start, f"scratch at {offset} was released twice"
            if merged and merged[-1][1] == start:
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        if merged and merged[-1][1] == self._top:
            self._top = merged.pop()[0]
        self._free = merged

    @staticmethod
    def _rounded(size_bytes: int) -> int:
        return max(1, -(-size_bytes // ALIGNMENT_BYTES)) * ALIGNMENT_BYTES
