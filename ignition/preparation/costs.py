"""What each program costs, measured with every lane and token live."""

from collections.abc import Callable, Iterable

import numpy as np

from ignition.preparation.driver import Driver, DriverLimits, Machine, Request

TRIALS = 3
DECODE_HISTORY_TOKENS = 32


class TimedMachine:
    """Keeps each program's fastest launch."""

    def __init__(self, machine: Machine, elapsed_ms: Callable[[Callable[[], None]], float]) -> None:
        self._machine = machine
        self._elapsed_ms = elapsed_ms
        self.fastest_ms: dict[str, float] = {}
        self.upload = machine.upload
        self.read = machine.read

    def launch(self, program: str) -> None:
        """Run and time a program."""
        elapsed = self._elapsed_ms(lambda: self._machine.launch(program))
        self.fastest_ms[program] = min(elapsed, self.fastest_ms.get(program, elapsed))


def measure_costs_ms(
    machine: Machine, limits: DriverLimits, programs: Iterable[str], elapsed_ms: Callable[[Callable[[], None]], float]
) -> dict[str, float]:
    """Milliseconds of each program's fastest of a few launches, by the device's clock. The state is left as it is."""
    timed = TimedMachine(machine, elapsed_ms)
    driver = Driver(timed, limits)
    generator = np.random.default_rng(0)

    def admit(slot: int, count: int) -> Request:
        count = min(count, limits.context_tokens_max - 1)
        return driver.admit(slot, generator.integers(0, limits.vocabulary, count), logprobs=0)

    first_row = 1 + limits.slots
    # A chunk's launch is long enough to measure once.
    for capacity in limits.prefill_capacities:
        request = admit(0, capacity)
        driver.prefill(request, len(request.prompt), capacity=capacity, sample=True)
        driver.reset(request)
    for _ in range(TRIALS):
        history = min(DECODE_HISTORY_TOKENS, limits.context_tokens_max - len(limits.decode_capacities) - 1)
        requests = [admit(slot, history) for slot in range(limits.slots)]
        for request in requests:
            driver.prefill(request, history, sample=True)
        for capacity in limits.decode_capacities:
            driver.decode(list(requests[:capacity]), capacity=capacity)
        checkpoint = driver.snapshot(requests[0], first_row)
        for request in requests:
            driver.reset(request, keep=checkpoint)
        target = admit(0, history)
        driver.restore(target, checkpoint)
        driver.resume(target)
        driver.reset(target)
    missing = sorted(set(programs) - timed.fastest_ms.keys())
    assert not missing, f"no fixture launches {missing}"
    return timed.fastest_ms
