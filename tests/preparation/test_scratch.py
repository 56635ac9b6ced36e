"""The scratch arena against a plain model: live ranges never overlap, all comes back, and order alone decides."""

from hypothesis import given
from hypothesis import strategies as st

from ignition.devices.host.scratch import ALIGNMENT_BYTES, ScratchArena

# A positive number takes that many bytes; a negative one releases one of the live ranges.
operations = st.lists(st.one_of(st.integers(1, 5000), st.integers(-50, -1)), max_size=80)


def play(steps):
    """Offsets taken, in order, after checking every range against the live ones."""
    arena, live, offsets = ScratchArena(), [], []
    for step in steps:
        if step > 0:
            offset = arena.take(step)
            assert offset % ALIGNMENT_BYTES == 0
            assert all(offset >= start + size or start >= offset + step for start, size in live)
            live.append((offset, step))
            offsets.append(offset)
        elif live:
            arena.release(*live.pop(-step % len(live)))
    assert arena.peak_bytes >= max((start + size for start, size in live), default=0)
    for start, size in live:
        arena.release(start, size)
    assert arena.live_bytes == 0
    assert arena.take(1) == 0
    return offsets


@given(operations)
def test_live_ranges_never_overlap_and_everything_comes_back(steps):
    assert play(steps) == play(steps)


def test_a_freed_range_serves_the_next_that_fits():
    arena = ScratchArena()
    first, second = arena.take(640), arena.take(64)
    arena.release(first, 640)
    assert arena.take(128) == first
    assert arena.take(512) == first + 128
    assert arena.peak_bytes == second + 64
