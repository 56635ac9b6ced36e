"""The arena: memory at a fixed address that tensors share."""

import ctypes

import pytest
import torch
from flare_heliopause import Arena, HeliopauseError

BASE = 0x1A00_0000_0000


def test_tensors_lie_at_fixed_addresses():
    arena = Arena(BASE, 1 << 20)
    assert (arena.address, arena.nbytes) == (BASE, 1 << 20)
    x = torch.frombuffer(memoryview(arena)[4096 : 4096 + 64], dtype=torch.float32)
    assert x.data_ptr() == BASE + 4096
    assert x.tolist() == [0.0] * 16
    x.fill_(2.5)
    assert ctypes.c_float.from_address(BASE + 4096 + 60).value == 2.5


def test_a_taken_range_is_refused_by_name():
    arena = Arena(BASE, 8192)
    with pytest.raises(HeliopauseError, match=r"0x1a0000001000 are in use"):
        Arena(BASE + 4096, 8192)
    arena.close()
    Arena(BASE + 4096, 8192)


def test_an_arena_with_views_stays_open():
    arena = Arena(BASE, 4096)
    tensor = torch.frombuffer(memoryview(arena)[:8], dtype=torch.int64)
    with pytest.raises(HeliopauseError, match="1 views"):
        arena.close()
    tensor[0] = 3
    del tensor
    arena.close()
    with pytest.raises(BufferError, match="closed"):
        memoryview(arena)


@pytest.mark.parametrize(("address", "nbytes"), [(BASE + 1, 4096), (BASE, 0), (BASE, 100)])
def test_ranges_are_whole_pages(address, nbytes):
    with pytest.raises(HeliopauseError, match="multiples of 4096"):
        Arena(address, nbytes)
