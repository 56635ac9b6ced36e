"""What preparation and export ask of a device. Its steps run in the order in which they stand here, each once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn

from ignition.components.weights import WeightStore
from ignition.export import core_pb2
from ignition.preparation.capture import Program, ProgramPlan, Recording, TrunkCall
from ignition.preparation.storage import Storage


@dataclass(frozen=True)
class EncodedPrograms:
    """Captured programs in the contract's words."""

    modules: list[core_pb2.Module]
    images: list[bytes]
    kernels: list[core_pb2.Kernel]
    nodes: list[list[core_pb2.Node]]  # By program.
    edges: list[list[core_pb2.Edge]]  # By program.


class Device(Protocol):
    """One kind of device, from the first weight to the exported core."""

    storage: Storage
    store: WeightStore
    prefill_tokens_min: int
    """The smallest prefill capacity."""
    prefill_tokens_default: int
    """The largest prefill capacity where none is asked for."""

    def start(self) -> None:
        """Make the operators ready, before anything is placed. Raises `PreparationError` where they cannot be."""

    def compile(self, trunk: nn.Module, *, hidden: int, rows: Sequence[int]) -> TrunkCall:
        """The trunk as a function of these counts of rows. Its weights and pages are in storage."""

    def tune(self, plans: Sequence[ProgramPlan], *, model_fingerprint: str) -> None:
        """Select among candidates by measuring, or by what was measured for this model before."""

    def capture(self, plan: ProgramPlan) -> Recording:
        """Record a program with what was selected."""

    def elapsed_ms(self, launch: Callable[[], None]) -> float:
        """Run a launch to its end; its time."""

    def check(self, program: Program) -> Callable[[], None]:
        """A launch that computes what the exported program has to, by a way as independent of it as there is."""

    def encode(self, programs: Sequence[Program]) -> EncodedPrograms:
        """What the contract says of the programs, and the modules that they need."""

    def identify(self, identity: core_pb2.Identity) -> None:
        """Name the device that the core is for."""

    def notes(self) -> Mapping[str, Any]:
        """Sections of the report."""

    def resident_budget_bytes(self) -> int:
        """Memory of the host that a preparation may take."""

    def close(self) -> None:
        """Give the memory back. Tensors on it have to be gone."""
