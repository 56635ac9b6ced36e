"""Device memory at fixed addresses, and torch's allocations in it."""

import ctypes

import pytest
import torch
from flare_heliopause import CudaArena, CudaDevice, CudaPool, HeliopauseError

if not torch.cuda.is_available():
    pytest.skip("there is no CUDA device on this machine", allow_module_level=True)

BASE = 0x2F00_0000_0000
MIB = 1 << 20


@pytest.fixture
def arena():
    arena = CudaArena(BASE, 1 << 40)
    yield arena
    arena.close()


def test_the_device_is_torchs():
    device = CudaDevice()
    properties = torch.cuda.get_device_properties(0)
    assert device.name == properties.name
    assert device.compute_capability == (properties.major, properties.minor)
    assert device.multiprocessors == properties.multi_processor_count
    assert device.driver_version >= (13, 0)
    free, total = device.memory()
    assert 0 < free <= total == torch.cuda.mem_get_info()[1]


def test_backing_grows_and_is_zero_and_stays(arena):
    assert (arena.address, arena.nbytes, arena.backed_bytes) == (BASE, 1 << 40, 0)
    arena.back(1)
    assert arena.backed_bytes == 2 * MIB
    first = torch.as_tensor(arena.view(0, 2 * MIB), device="cuda")
    assert first.data_ptr() == BASE
    assert first.count_nonzero() == 0
    first.fill_(7)
    arena.back(5 * MIB)
    arena.back(1)
    assert arena.backed_bytes == 6 * MIB
    whole = torch.as_tensor(arena.view(0, 6 * MIB), device="cuda")
    assert whole.count_nonzero() == 2 * MIB
    torch.as_tensor(arena.view(MIB, 4), device="cuda").view(torch.int32).fill_(-1)
    assert whole[MIB : MIB + 5].tolist() == [255, 255, 255, 255, 7]
    del first, whole


def test_what_is_not_backed_is_not_handed_out(arena):
    arena.back(2 * MIB)
    with pytest.raises(HeliopauseError, match="leave the memory that may be accessed"):
        arena.view(2 * MIB - 1, 2)
    with pytest.raises(HeliopauseError, match="leave the memory"):
        arena.back((1 << 40) + 1)


def test_addresses_are_taken_once_and_given_back():
    first = CudaArena(BASE + (1 << 41), 4 * MIB)
    with pytest.raises(HeliopauseError, match="in use in this process"):
        CudaArena(BASE + (1 << 41) + 2 * MIB, 2 * MIB)
    first.back(4 * MIB)
    view = first.view(0, 16)
    with pytest.raises(HeliopauseError, match="has 1 views and pools"):
        first.close()
    del view
    first.close()
    first.close()
    with pytest.raises(HeliopauseError, match="closed"):
        first.back(1)
    CudaArena(BASE + (1 << 41), 4 * MIB).close()
    with pytest.raises(HeliopauseError, match="multiples of 2097152"):
        CudaArena(BASE + 4096, 2 * MIB)


def test_torch_allocates_in_the_arena(arena):
    pool = CudaPool(arena)
    functions = (pool.library, pool.allocate_symbol, pool.free_symbol)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(*functions)
    torch_pool = torch.cuda.MemPool(allocator.allocator())
    with torch.cuda.use_mem_pool(torch_pool):
        tensors = [torch.full((size,), size % 100, dtype=torch.uint8, device="cuda") for size in (1, 3 * MIB, 30 * MIB)]
    for tensor in tensors:
        assert BASE <= tensor.data_ptr() < BASE + pool.used_bytes <= BASE + arena.backed_bytes
        assert bool((tensor == tensor.numel() % 100).all())
    elsewhere = torch.empty(1, device="cuda")
    assert not BASE <= elsewhere.data_ptr() < BASE + arena.nbytes
    with pytest.raises(HeliopauseError, match="has 1 views and pools"):
        arena.close()
    del tensors, tensor, torch_pool
    pool.close()
    with pytest.raises(HeliopauseError, match="the pool is closed"):
        _ = pool.used_bytes


def functions_of(pool):
    """The pool's functions, as torch calls them."""
    library = ctypes.CDLL(pool.library)
    allocate, free = library[pool.allocate_symbol], library[pool.free_symbol]
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    return allocate, free


def test_freed_memory_is_used_again_and_the_arenas_end_is_said():
    arena = CudaArena(BASE + (1 << 42), 4 * MIB)
    pool = CudaPool(arena)
    allocate, free = functions_of(pool)
    first, second = allocate(MIB, 0, None), allocate(3 * MIB, 0, None)
    assert (first, second) == (arena.address, arena.address + MIB)
    assert allocate(1, 0, None) is None
    assert "do not fit" in pool.failure
    free(first, MIB, 0, None)
    assert allocate(512, 0, None) == first
    assert pool.used_bytes == 4 * MIB
    pool.close()
    assert allocate(1, 0, None) is None
    free(second, 3 * MIB, 0, None)
    arena.close()


def test_pools_are_bounded():
    arena = CudaArena(BASE + (1 << 43), 2 * MIB)
    pools = []
    with pytest.raises(HeliopauseError, match="8 pools are open already"):
        while len(pools) < 100:
            pools.append(CudaPool(arena))
    for pool in pools:
        pool.close()
    CudaPool(arena).close()
    arena.close()
