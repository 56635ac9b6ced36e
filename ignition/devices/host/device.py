"""The host as a device of preparation."""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

import ignition.kernels.host.torch_ops  # noqa: F401 - Registers the host's operators.
from ignition.components.weights import WeightStore
from ignition.devices.device import EncodedPrograms
from ignition.devices.host.compile import CompiledTrunk, compile_trunk
from ignition.devices.host.inductor import build_module
from ignition.devices.host.memory import HOST_BASE, HostMemory
from ignition.devices.host.record import Node, ProgramRecorder, replay, run_every, run_none
from ignition.devices.host.variants import VariantTuner
from ignition.export import core_pb2
from ignition.kernels.host import entries
from ignition.kernels.host.build import Builder, detect_tier
from ignition.kernels.host.packed import PackedStore
from ignition.preparation.capture import Program, ProgramPlan, Recording, TrunkCall
from ignition.preparation.storage import Storage

RESIDENT_BEYOND_WEIGHTS_MAX = 1 << 30
"""Memory that a preparation may hold beyond the weights that it stores."""


class HostDevice:
    """A `Device`: this machine's processors."""

    prefill_tokens_min = 16
    prefill_tokens_default = 512
    trunk: CompiledTrunk
    tuner: VariantTuner

    def __init__(self, *, base: int = HOST_BASE) -> None:
        self.builder = Builder(detect_tier())
        self.storage = Storage(HostMemory, base=base)
        self.store: WeightStore = PackedStore(self.storage.weights.allocate)
        self.recorder = ProgramRecorder(self.storage)

    def start(self) -> None:
        """Build the operators."""
        entries.library()

    def compile(self, trunk: nn.Module, *, hidden: int, rows: Sequence[int]) -> TrunkCall:
        """Compile the trunk over a symbolic count, whatever the rows, and build the core's module."""
        self.trunk = compile_trunk(trunk, hidden=hidden, tier=self.builder.tier)
        self.module = build_module(self.trunk.kernels.kernels, self.builder)
        entries.use(self.module)
        return self.trunk

    def tune(self, plans: Sequence[ProgramPlan], *, model_fingerprint: str) -> None:
        """Measure each kernel with a team and without, at every capacity. It takes a second, so nothing is kept."""
        self.tuner = VariantTuner(self.trunk.kernels)
        for plan in plans:
            self.tuner.measure(self.recorder, plan)

    def capture(self, plan: ProgramPlan) -> Recording:
        """Note a program's calls; none of them runs."""
        nodes = self.tuner.record(self.recorder, plan, runs=run_none)
        words = frozenset(word for node in nodes for word in node.arguments)
        return Recording(nodes, words, replay(nodes))

    def elapsed_ms(self, launch: Callable[[], None]) -> float:
        """Time a launch; it returns at its end."""
        start = time.perf_counter()
        launch()
        return (time.perf_counter() - start) * 1e3

    def check(self, program: Program) -> Callable[[], None]:
        """A launch that runs the program's function again, through Python, and holds its calls against the record."""

        def run() -> None:
            nodes = self.tuner.record(self.recorder, program.plan, runs=run_every)
            assert nodes == program.nodes, f"{program.plan.name} recorded other calls when it ran again"

        return run

    def encode(self, programs: Sequence[Program]) -> EncodedPrograms:
        """One module; every entry that is called is a kernel."""
        kernels: dict[str, int] = {}

        def message(node: Node) -> core_pb2.Node:
            return core_pb2.Node(kernel=kernels.setdefault(node.symbol, len(kernels)), arguments=node.arguments)

        nodes = [[message(node) for node in program.nodes] for program in programs]
        return EncodedPrograms(
            modules=[core_pb2.Module(name="host", format=core_pb2.MODULE_FORMAT_ELF)],
            images=[self.module.read_bytes()],
            kernels=[core_pb2.Kernel(module=0, symbol=symbol) for symbol in kernels],
            nodes=nodes,
            edges=[[] for _ in programs],
        )

    def identify(self, identity: core_pb2.Identity) -> None:
        """The architecture and the features that the module uses."""
        device = core_pb2.HostDevice(architecture=platform.machine(), isa=self.builder.tier.features)
        identity.host.CopyFrom(device)

    def notes(self) -> Mapping[str, Any]:
        """What the object cache held, and each kernel's chosen entry at each row count."""
        plans: dict[str, dict[str, str]] = {}
        for (kernel, rows), entry in sorted(self.tuner.choices.items()):
            plans.setdefault(kernel, {})[str(rows)] = entry
        return {
            "object_cache": {"hits": self.builder.hits, "misses": self.builder.misses},
            "selected_plans": {"trials": self.tuner.trial_count, "kernels": plans},
        }

    def resident_budget_bytes(self) -> int:
        """Stored weights, which are here, and what building takes."""
        return self.storage.weights.used_bytes + RESIDENT_BEYOND_WEIGHTS_MAX

    def close(self) -> None:
        """Give the regions back."""
        self.storage.close()
