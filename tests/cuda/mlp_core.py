"""A compiled stack of layers, captured as one CUDA graph and written as a core: what a real core is made of.

Inductor makes Triton kernels of it, copies, and matrix products of cuBLAS with clusters and programmatic launches.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from flare_heliopause import CapturedGraph, CudaArena, CudaDevice, CudaPool, ModuleRecorder, read_graph

from ignition.export import core_pb2
from tests.heliopause.tiny_core import BUFFERS, build_contract, write_file

HIDDEN, INNER, LAYERS, VOCABULARY, TOKENS = 1024, 2816, 4, 32000, 4
BASE = 0x2000_0000_0000
SPAN = 1 << 34
# The test's own tensors lie in the io region behind the contract's buffers.
IDS, OUT, LOGITS = (1 << 20, 1 << 20 | 4096, 2 << 20)
IO_BYTES = 4 << 20


class Block(torch.nn.Module):
    """A gated layer behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(HIDDEN)
        self.gate = torch.nn.Linear(HIDDEN, INNER, bias=False)
        self.up = torch.nn.Linear(HIDDEN, INNER, bias=False)
        self.down = torch.nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        return x + self.down(torch.nn.functional.silu(self.gate(h)) * self.up(h))


@dataclass
class Regions:
    """The arenas of a core, in the contract's order, and the pools over two of them."""

    weights: CudaArena
    io: CudaArena
    scratch: CudaArena
    weights_pool: CudaPool
    scratch_pool: CudaPool

    @classmethod
    def reserve(cls) -> "Regions":
        weights, io, scratch = (CudaArena(BASE + index * SPAN, SPAN) for index in range(3))
        io.back(IO_BYTES)
        return cls(weights, io, scratch, CudaPool(weights), CudaPool(scratch))

    def close(self) -> None:
        """Gives everything back, once the tensors are gone."""
        for part in (self.weights_pool, self.scratch_pool, self.weights, self.io, self.scratch):
            part.close()


def torch_pool(pool: CudaPool) -> torch.cuda.MemPool:
    """A torch pool that allocates from `pool`."""
    functions = (pool.library, pool.allocate_symbol, pool.free_symbol)
    return torch.cuda.MemPool(torch.cuda.memory.CUDAPluggableAllocator(*functions).allocator())


def io_tensor(regions: Regions, offset: int, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor at a place of the io region."""
    nbytes = torch.Size(shape).numel() * dtype.itemsize
    return torch.as_tensor(regions.io.view(offset, nbytes), device="cuda").view(dtype).view(shape)


class CapturedMlp:
    """The stack, its inputs and outputs in io, and its graph."""

    def __init__(self, regions: Regions) -> None:
        self.regions = regions
        self.ids = io_tensor(regions, IDS, [TOKENS], torch.int64)
        self.out = io_tensor(regions, OUT, [TOKENS], torch.int64)
        self.logits = io_tensor(regions, LOGITS, [TOKENS, VOCABULARY], torch.float32)
        torch.manual_seed(0)
        self.weights_pool, self.scratch_pool = torch_pool(regions.weights_pool), torch_pool(regions.scratch_pool)
        with torch.cuda.use_mem_pool(self.weights_pool), torch.device("cuda"):
            self.layers = torch.nn.ModuleList(Block() for _ in range(LAYERS)).to(torch.bfloat16)
            self.embedding = torch.randn(VOCABULARY, HIDDEN, dtype=torch.bfloat16) * 0.1
        self.compiled = torch.compile(self.forward, fullgraph=True, dynamic=False)
        self.graph = self.capture()

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.embedding[ids]
        for layer in self.layers:
            x = layer(x)
        logits = (x @ self.embedding.t()).float()
        return logits, logits.argmax(-1)

    def step(self) -> None:
        logits, tokens = self.compiled(self.ids)
        self.logits.copy_(logits)
        self.out.copy_(tokens)

    @torch.no_grad()
    def capture(self) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph, pool=self.scratch_pool.id):
            self.step()
        graph.instantiate()
        return graph

    def replay(self, ids: list[int]) -> tuple[bytes, bytes]:
        """Tokens and logits, as torch's replay computes them."""
        self.ids.copy_(torch.tensor(ids))
        self.logits.fill_(-1)
        self.graph.replay()
        torch.cuda.synchronize()
        return content(self.out), content(self.logits)

    def write(self, folder: Path, recorder: ModuleRecorder) -> CapturedGraph:
        """Writes the core: every program is the captured graph."""
        graph = read_graph(self.graph.raw_cuda_graph(), recorder)
        contract = build_contract(core_pb2)
        images = add_code(contract, graph, recorder.images())
        weights = torch.as_tensor(self.regions.weights.view(0, self.regions.weights.backed_bytes), device="cuda")
        place_regions(contract, self.regions)
        write_file(folder, contract.SerializeToString(), images, content(weights))
        return graph


def content(tensor: torch.Tensor) -> bytes:
    """A tensor's bytes."""
    return tensor.contiguous().view(torch.uint8).cpu().numpy().tobytes()


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
    assert len(BUFFERS) * 1024 <= IDS
    spare = -(-max(regions.scratch_pool.used_bytes, 1) // 4096) * 4096
    sizes = [regions.weights.backed_bytes, IO_BYTES, spare, 1 << 20, 1 << 30]
    contract.regions.insert(2, core_pb2.Region(name="scratch", role="REGION_ROLE_SCRATCH"))
    contract.regions[2].backing = core_pb2.REGION_BACKING_ZEROED
    contract.state.rows_region, contract.state.pages_region = 3, 4
    for index, (region, nbytes) in enumerate(zip(contract.regions, sizes, strict=True)):
        region.address, region.bytes = BASE + index * SPAN, nbytes
