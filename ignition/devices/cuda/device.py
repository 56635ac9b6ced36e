"""An NVIDIA GPU as a device of preparation."""

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import flare_heliopause as heliopause
import torch
from torch import nn

import ignition.kernels.triton.torch_ops  # noqa: F401 - Registers the device's operators.
from ignition.caches import cache_folder
from ignition.components.weights import WeightStore
from ignition.devices.cuda.bench import CudaBench, elapsed_ms
from ignition.devices.cuda.compile import CompiledTrunk
from ignition.devices.cuda.graphs import addresses_in, encode_graphs
from ignition.devices.cuda.memory import CUDA_BASE, CudaMemory, RowMajorStore
from ignition.devices.device import EncodedPrograms
from ignition.errors import PreparationError, UsageError
from ignition.export import core_pb2
from ignition.kernels.candidates import choosing
from ignition.preparation.capture import Program, ProgramPlan, Recording, TrunkCall
from ignition.preparation.selections import SelectionCache
from ignition.preparation.storage import Storage
from ignition.preparation.tuning import TuningSession

RESIDENT_MAX = 8 << 30
"""Memory of the host that a preparation may hold: libraries, compilers, and blocks of weights on their way."""


class CudaDevice:
    """A `Device`: the first GPU that this process sees."""

    prefill_tokens_min = 128
    prefill_tokens_default = 4096
    trunk: CompiledTrunk
    tuning: TuningSession

    def __init__(self) -> None:
        self._recorder = heliopause.ModuleRecorder()
        try:
            self._recorder.start()  # Before CUDA is initialized: a module that was loaded earlier is lost.
            self._properties = heliopause.CudaDevice()
        except heliopause.HeliopauseError as error:
            raise UsageError(f"no core can be prepared for CUDA here: {error}; or pass --device host") from error
        if not torch.cuda.is_available():
            raise UsageError("this torch sees no CUDA device; install a CUDA build of torch, or pass --device host")
        self.storage = Storage(CudaMemory, base=CUDA_BASE)
        self.store: WeightStore = RowMajorStore(self.storage.weights)
        scratch = self.storage.scratch.memory
        assert isinstance(scratch, CudaMemory)
        self._pool = heliopause.CudaPool(scratch.arena)
        self._allocator = torch.cuda.memory.CUDAPluggableAllocator(
            self._pool.library, self._pool.allocate_symbol, self._pool.free_symbol
        )
        self._torch_pool = torch.cuda.MemPool(self._allocator.allocator())  # type: ignore[no-untyped-call]
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._graphs: dict[str, heliopause.CapturedGraph] = {}

    def start(self) -> None:
        """Kernels are compiled as they are first called, and kept where a restart of the machine keeps them."""
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder("inductor")))
        # Else it depends on what Inductor compiles in this process.
        os.environ.setdefault("TRITON_CACHE_DIR", str(cache_folder("triton")))

    def compile(self, trunk: nn.Module, *, hidden: int, rows: Sequence[int]) -> TrunkCall:
        """Compile the trunk for every row count."""
        self.trunk = CompiledTrunk(trunk, hidden=hidden, rows=rows, join=self._join, device="cuda")
        return self.trunk

    def tune(self, plans: Sequence[ProgramPlan], *, model_fingerprint: str) -> None:
        """Run every program once, race what they ask, and run them again where they will be captured."""
        major, minor = self._properties.compute_capability
        namespace = {
            "model": model_fingerprint,
            "device": f"{major}.{minor} with {self._properties.multiprocessors} multiprocessors",
            "torch": torch.__version__,
            "triton": version("triton"),
        }
        self.tuning = TuningSession(SelectionCache(cache_folder("selections"), namespace))
        # The largest first: what they leave free serves the smaller ones.
        functions = [plan.function for plan in sorted(plans, key=lambda plan: -plan.rows)]
        bench = CudaBench()
        with torch.no_grad():
            self.tuning.declare(functions, bench)
            self.tuning.select(bench)
            self.tuning.freeze()
            torch._C._cuda_clearCublasWorkspaces()
            with choosing(self.tuning), torch.cuda.stream(self._stream), torch.cuda.use_mem_pool(self._torch_pool):
                for function in functions:
                    function()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def capture(self, plan: ProgramPlan) -> Recording:
        """Capture a program. Raises `PreparationError` where its graph is not one that a core can hold."""
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        pool: Any = self._torch_pool.id  # torch's own annotation does not admit what its documentation asks for.
        with (
            torch.no_grad(),
            choosing(self.tuning),
            torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"),
        ):
            plan.function()
        try:
            captured = heliopause.read_graph(graph.raw_cuda_graph(), self._recorder)
        except heliopause.HeliopauseError as error:
            raise PreparationError(f"{plan.name} cannot be exported: {error}") from error
        graph.instantiate()
        self._graphs[plan.name] = captured
        self.storage.scratch.reserve(self._pool.used_bytes)
        return Recording(captured.nodes, addresses_in(captured), graph.replay, captured.edges)

    def elapsed_ms(self, launch: Callable[[], None]) -> float:
        """Time a launch by events."""
        return elapsed_ms(launch)

    def check(self, program: Program) -> Callable[[], None]:
        """The captured graph, replayed by torch."""
        return program.recording.launch

    def encode(self, programs: Sequence[Program]) -> EncodedPrograms:
        """The graphs, and the modules of their kernels."""
        return encode_graphs([self._graphs[program.plan.name] for program in programs], self._recorder.images())

    def identify(self, identity: core_pb2.Identity) -> None:
        """The compute capability and the multiprocessors that kernels were chosen for."""
        major, minor = self._properties.compute_capability
        identity.cuda.CopyFrom(
            core_pb2.CudaDevice(
                compute_major=major, compute_minor=minor, multiprocessors=self._properties.multiprocessors
            )
        )

    def notes(self) -> Mapping[str, Any]:
        """Selections, what was fused, and the device."""
        free_bytes, total_bytes = self._properties.memory()
        return {
            "selected_plans": self.tuning.notes(),
            "fused_operators": dict(self.trunk.fused),
            "scratch_arena": {"retained_bytes": self._pool.used_bytes},
            "device": {
                "name": self._properties.name,
                "driver": ".".join(map(str, self._properties.driver_version)),
                "cuda": torch.version.cuda,
                "triton": version("triton"),
                "memory_bytes": total_bytes,
                "memory_used_bytes": total_bytes - free_bytes,
            },
        }

    def resident_budget_bytes(self) -> int:
        """Weights are the device's."""
        return RESIDENT_MAX

    def close(self) -> None:
        """Give the memory back."""
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()
        del self._torch_pool
        torch.cuda.empty_cache()
        self._pool.close()
        self.storage.close()

    def _join(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
        return self.storage.weights.joined(tensors)
