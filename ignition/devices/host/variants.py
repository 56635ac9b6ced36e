"""Tuning: the candidates of an operation are measured where it will run, and the fastest is recorded.

For an Inductor kernel the candidates are its two variants. A team costs more than it gives where there is little to do,
and how little that is depends on the machine. Both give the same bits.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ignition.devices.host.inductor import InductorKernel, KernelCollector
from ignition.devices.host.record import Node, ProgramRecorder
from ignition.kernels.host import entries
from ignition.preparation.capture import ProgramPlan

TRIALS = 3
TEAM_GAIN_MIN = 1.1
"""A team has to win by this much: on a busy machine it waits for cores, a single thread does not."""

# What these compute takes long and is no index into anything, so kernels can be timed on whatever lies there.
_NOT_TUNED_HERE = frozenset({"flare_linear", "flare_attention", "flare_vocabulary", "flare_sample"})


@dataclass
class VariantTuner:
    """Measures every kernel at a program's row count on its first call there."""

    kernels: KernelCollector
    choices: dict[tuple[str, int], str] = field(default_factory=dict)  # (kernel, rows) to entry.
    trial_count: int = 0

    def measure(self, recorder: ProgramRecorder, plan: ProgramPlan) -> None:
        """Run a program once with every kernel call tried in both variants."""

        def select(kernel: InductorKernel, words: tuple[int, ...]) -> str:
            key = (kernel.symbol, plan.rows)
            if key not in self.choices:
                team, serial = (self._fastest_us(variant, words) for variant in kernel.variants)
                self.choices[key] = kernel.variants[0 if team * TEAM_GAIN_MIN < serial else 1]
            return self.choices[key]

        self.kernels.select = select
        recorder.run(plan.function, runs=lambda symbol: symbol not in _NOT_TUNED_HERE)

    def record(self, recorder: ProgramRecorder, plan: ProgramPlan, *, runs: Callable[[str], bool]) -> tuple[Node, ...]:
        """The program's nodes with the chosen variants."""
        self.kernels.select = lambda kernel, _: self.choices[kernel.symbol, plan.rows]
        return recorder.run(plan.function, runs=runs)

    def _fastest_us(self, symbol: str, words: tuple[int, ...]) -> float:
        self.trial_count += TRIALS
        return min(measured_us(lambda: entries.library().run(symbol, words)) for _ in range(TRIALS))


def measured_us(call: Callable[[], None]) -> float:
    """Microseconds of one call."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e6
