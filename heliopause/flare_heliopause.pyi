"""Heliopause: Helios' memory, loader and executor for Python."""

import os
from typing import Any, Self, final

__all__ = [
    "Arena",
    "CapturedGraph",
    "Core",
    "CudaArena",
    "CudaDevice",
    "CudaPool",
    "CudaView",
    "HeliopauseError",
    "ModuleRecorder",
    "read_graph",
]

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
class CudaDevice:
    """What the CUDA device of this process is. Making one loads the driver; without a device it is an error."""

    def __new__(cls) -> Self:
        """Raises `HeliopauseError` where there is no driver, none that is new enough, or no device."""

    @property
    def name(self) -> str:
        """As the driver names it."""

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Major and minor."""

    @property
    def multiprocessors(self) -> int:
        """Streaming multiprocessors."""

    @property
    def driver_version(self) -> tuple[int, int]:
        """The newest CUDA release that the driver knows, major and minor."""

    @property
    def integrated(self) -> bool:
        """Whether the device shares its memory with the processors."""

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""

@final
class CudaArena:
    """A range of device addresses, reserved at exactly `address`, whose first bytes are backed by memory.

    Only what is backed may be touched. New backing is zero-filled. Everything that a captured graph reads or writes
    must lie in an arena, so that a loader can put it at the same addresses.
    """

    def __new__(cls, address: int, nbytes: int) -> Self:
        """Reserves `nbytes` at `address`, a multiple of 2 MiB, and 1 GiB at least. Nothing is backed yet.

        Raises `HeliopauseError` when the range is taken.
        """

    @property
    def address(self) -> int:
        """The address of the first byte."""

    @property
    def nbytes(self) -> int:
        """Reserved bytes."""

    @property
    def backed_bytes(self) -> int:
        """Bytes from the start on that are backed."""

    def back(self, nbytes: int) -> None:
        """Backs at least the first `nbytes`. What is backed stays: a smaller number changes nothing."""

    def view(self, offset: int, nbytes: int) -> CudaView:
        """The backed bytes from `offset` on, for `torch.as_tensor(view, device="cuda")`, which copies nothing."""

    def close(self) -> None:
        """Gives memory and range back. Raises `HeliopauseError` while views or a pool of it are alive."""

@final
class CudaView:
    """Bytes of an arena, which it keeps alive, as a uint8 array of the CUDA array interface."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

@final
class CudaPool:
    """What torch allocates from an arena, which the pool keeps alive.

    `torch.cuda.memory.CUDAPluggableAllocator(pool.library, pool.allocate_symbol, pool.free_symbol)` is an allocator
    for a `torch.cuda.MemPool`. The arena is backed as it is used, also while a stream is captured. Memory that torch
    frees is used again, lowest address first. At most 8 pools are open at a time.
    """

    def __new__(cls, arena: CudaArena) -> Self:
        """Raises `HeliopauseError` when 8 pools are open."""

    @property
    def library(self) -> str:
        """The path of the shared object that holds the symbols: this extension."""

    @property
    def allocate_symbol(self) -> str:
        """The name of the function that allocates."""

    @property
    def free_symbol(self) -> str:
        """The name of the function that frees."""

    @property
    def used_bytes(self) -> int:
        """Bytes up to the end of what is or ever was allocated: what a region for the pool must hold."""

    @property
    def failure(self) -> str | None:
        """Why the last allocation failed; torch says only that memory is out."""

    def close(self) -> None:
        """Frees the pool's place. What is allocated is the arena's again, so every tensor of the pool must be gone."""

@final
class ModuleRecorder:
    """Keeps the image of every CUDA module that the process loads, by CUPTI. There is one at a time."""

    def __new__(cls) -> Self: ...
    def start(self) -> None:
        """Begins to record. Must come before CUDA is initialized in the process, or modules are missed.

        Raises `HeliopauseError` where CUPTI cannot be loaded or is in use by a profiler.
        """

    def stop(self) -> None:
        """Ends recording. The images stay."""

    def images(self) -> list[bytes]:
        """The distinct images so far, in the order in which they were loaded. The list only grows."""

@final
class CapturedGraph:
    """A captured graph, as encoded messages of `core.proto`: what a program of a core holds."""

    @property
    def kernels(self) -> list[bytes]:
        """`Kernel` messages, each once. `module` is an index into the recorder's images."""

    @property
    def nodes(self) -> list[bytes]:
        """`Node` messages, every node after those it waits for. A launch's `kernel` is an index into `kernels`."""

    @property
    def edges(self) -> list[bytes]:
        """`Edge` messages between `nodes`."""

def read_graph(cuda_graph: int, recorder: ModuleRecorder) -> CapturedGraph:
    """Reads a `cudaGraph_t`, such as `torch.cuda.CUDAGraph(keep_graph=True).raw_cuda_graph()`.

    Raises `HeliopauseError`, with the node and its kind, for whatever a core cannot hold: nodes other than kernels,
    copies within the device and fills; kernels whose module was not recorded or is not certain; device memory outside
    every open arena, in a copy, a fill or a kernel's parameters.
    """

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

    def launch_early(self, program: int | str, masks: bytes | bytearray | memoryview) -> bool:
        """Runs a program whose grammar masks are uploaded once it has begun, and waits for its end.

        False where the device took the masks first and ran the program whole.
        """

    def read(self, buffer: int | str, offset_bytes: int = 0, nbytes: int | None = None) -> bytes:
        """Bytes of a buffer, by default all from the offset on."""

    def read_region(self, region: int | str, offset_bytes: int, nbytes: int) -> bytes:
        """Bytes of a region's backed part."""

    def write_region(self, region: int | str, offset_bytes: int, data: bytes | bytearray | memoryview) -> None:
        """Overwrites bytes of a region's backed part; weights are read-only."""

    def close(self) -> None:
        """Unmaps the core. Closing twice is fine; using a closed core is an error."""
