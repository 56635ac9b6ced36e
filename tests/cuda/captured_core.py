"""Writes a captured graph as a core, and runs the core in a process without torch."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from flare_heliopause import CapturedGraph, CudaArena, CudaDevice, CudaPool, ModuleRecorder, read_graph

from ignition.export import core_pb2
from tests.heliopause.tiny_core import BUFFERS, build_contract, write_file

SPAN = 1 << 34
# The test's own tensors lie in the io region behind the contract's buffers.
OWN = 1 << 20
IO_BYTES = 4 << 20
MASKS = 1024 * [source for source, _, _ in BUFFERS].index("GRAMMAR_MASKS")


class Regions:
    """The arenas of a core, in the contract's order, and the pools over two of them."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.weights, self.io, self.scratch = (CudaArena(base + index * SPAN, SPAN) for index in range(3))
        self.weights.back(1)
        self.io.back(IO_BYTES)
        self.weights_pool, self.scratch_pool = CudaPool(self.weights), CudaPool(self.scratch)

    def io_tensor(self, offset: int, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor at a place of the io region."""
        nbytes = torch.Size(shape).numel() * dtype.itemsize
        return torch.as_tensor(self.io.view(offset, nbytes), device="cuda").view(dtype).view(shape)


def torch_pool(pool: CudaPool) -> torch.cuda.MemPool:
    """A torch pool that allocates from `pool`."""
    functions = (pool.library, pool.allocate_symbol, pool.free_symbol)
    return torch.cuda.MemPool(torch.cuda.memory.CUDAPluggableAllocator(*functions).allocator())


def content(tensor: torch.Tensor) -> bytes:
    """A tensor's bytes."""
    return tensor.contiguous().view(torch.uint8).cpu().numpy().tobytes()


def write_core(folder: Path, graph: torch.cuda.CUDAGraph, regions: Regions, recorder: ModuleRecorder) -> CapturedGraph:
    """Writes the core: every program is the captured graph."""
    captured = read_graph(graph.raw_cuda_graph(), recorder)
    contract = build_contract(core_pb2)
    images = add_code(contract, captured, recorder.images())
    weights = torch.as_tensor(regions.weights.view(0, regions.weights.backed_bytes), device="cuda")
    place_regions(contract, regions)
    write_file(folder, contract.SerializeToString(), images, content(weights))
    return captured


Input = tuple[bytes, bytes]
"""Bytes for the test's own tensors, and late masks or none."""


def replay(core: Path, folder: Path, inputs: Sequence[Input], spans: list[tuple[int, int]]) -> list[bytes]:
    """What the core leaves in spans of the io region after each input, as `replay.py` runs it in `folder`."""
    for index, (own, masks) in enumerate(inputs):
        (folder / f"{index}.in").write_bytes(own)
        (folder / f"{index}.masks").write_bytes(masks)
    numbers = [OWN, *(number for span in spans for number in span)]
    command = [sys.executable, Path(__file__).with_name("replay.py"), core, "decode.1", folder, *map(str, numbers)]
    subprocess.run(command, check=True, timeout=300)
    return [(folder / f"{index}.out").read_bytes() for index in range(len(inputs))]


def add_code(contract: Any, graph: CapturedGraph, images: list[bytes]) -> list[bytes]:
    """Puts the graph into every program, and returns the images of the modules that it uses."""
    kernels = [core_pb2.Kernel.FromString(kernel) for kernel in graph.kernels]
    used = sorted({kernel.module for kernel in kernels})
    for kernel in kernels:
        kernel.module = used.index(kernel.module)
    del contract.modules[:], contract.kernels[:]
    for index in range(len(used)):
        contract.modules.add(name=f"module.{index}", format="MODULE_FORMAT_CUBIN")
    contract.kernels.extend(kernels)
    for program in contract.programs:
        del program.nodes[:]
        program.nodes.extend(core_pb2.Node.FromString(node) for node in graph.nodes)
        program.edges.extend(core_pb2.Edge.FromString(edge) for edge in graph.edges)
    return [images[module] for module in used]


def place_regions(contract: Any, regions: Regions) -> None:
    """Makes the contract one for this device, with the arenas for regions and rows and pages behind them."""
    device = CudaDevice()
    major, minor = device.compute_capability
    contract.identity.cuda.MergeFrom(
        core_pb2.CudaDevice(compute_major=major, compute_minor=minor, multiprocessors=device.multiprocessors)
    )
    assert len(BUFFERS) * 1024 <= OWN
    spare = -(-max(regions.scratch_pool.used_bytes, 1) // 4096) * 4096
    sizes = [regions.weights.backed_bytes, IO_BYTES, spare, 1 << 20, 1 << 30]
    contract.regions.insert(2, core_pb2.Region(name="scratch", role="REGION_ROLE_SCRATCH"))
    contract.regions[2].backing = core_pb2.REGION_BACKING_ZEROED
    contract.state.rows_region, contract.state.pages_region = 3, 4
    for index, (region, nbytes) in enumerate(zip(contract.regions, sizes, strict=True)):
        region.address, region.bytes = regions.base + index * SPAN, nbytes
