"""The fixture: one fixed run through every program, and a digest of everything each launch can write.

The preparing process and a fresh one run it on their own machines; equal digests mean equal bits. It imports no torch.
"""

import hashlib
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np

from ignition.preparation.driver import Driver, DriverLimits, Machine, Request

WRITTEN_SOURCES = ("completion", "logprob_tokens", "logprob_values", "logits", "request_fields", "histogram")
STATE_REGIONS = ("rows", "pages")
SHORT_PROMPT_TOKENS = 21


class FixtureMachine(Machine, Protocol):
    """A machine whose rows and pages can be looked at."""

    def region(self, name: str) -> bytes:
        """The backed bytes of a region."""


@dataclass(frozen=True)
class Step:
    """What one launch, or the whole run, left behind."""

    program: str
    digests: dict[str, str]

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


class ObservedMachine:
    """Notes a step after every launch."""

    def __init__(self, machine: FixtureMachine) -> None:
        self._machine = machine
        self.upload = machine.upload
        self.read = machine.read
        self.steps: list[Step] = []

    def launch(self, program: str) -> None:
        """Run a program and take its digests."""
        self._machine.launch(program)
        self.steps.append(Step(program, {source: digest(self.read(source)) for source in WRITTEN_SOURCES}))


def run_fixture(machine: FixtureMachine, limits: DriverLimits) -> list[Step]:
    """Every program, on memory that starts as zeros; one step a launch and a last one for rows and pages."""
    observed = ObservedMachine(machine)
    driver = Driver(observed, limits)
    generator = np.random.default_rng(20)
    words = np.asarray(generator.integers(0, 1 << 32, (limits.lanes, -(-limits.vocabulary // 32))), np.uint32)
    observed.upload("grammar_masks", words)

    def admit(slot: int, count: int) -> Request:
        count = max(1, min(count, limits.context_tokens_max - 8))
        prompt = generator.integers(0, limits.vocabulary, count)
        return driver.admit(
            slot, prompt, seed=1000 + slot, temperature=0.8, top_k=50, top_p=0.95, penalties=(1.1, 0.1, 0.1), logprobs=5
        )

    for index, capacity in enumerate(limits.prefill_capacities):
        request = admit(index % limits.slots, capacity - 3 * (index % 2))
        driver.prefill(request, len(request.prompt), capacity=capacity, sample=True, masked=index == 0)
        driver.reset(request)

    requests = [admit(slot, SHORT_PROMPT_TOKENS + 30 * (slot % 4)) for slot in range(limits.slots)]
    for request in requests:
        driver.prefill(request, len(request.prompt) // 2)
        driver.prefill(request, len(request.prompt) - request.consumed, sample=True)
    for capacity in limits.decode_capacities:
        lanes: list[Request | None] = list(reversed(requests[:capacity]))
        driver.decode(lanes, capacity=capacity, masked=capacity == 1)

    source = requests[-1]
    checkpoint = driver.snapshot(source, 2 + limits.slots)
    driver.decode([source])
    driver.reset(source, keep=checkpoint)
    target = admit(source.slot, SHORT_PROMPT_TOKENS)
    driver.restore(target, checkpoint)
    driver.resume(target)
    driver.decode([target])

    regions = {name: digest(machine.region(name)) for name in STATE_REGIONS}
    return [*observed.steps, Step("the whole run", regions)]


def first_difference(expected: list[Step], found: list[Step]) -> str | None:
    """A sentence on the first step that differs, or None."""
    for index, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one.program != other.program:
            return f"launch {index} is {other.program} and not {one.program}"
        names = [name for name in one.digests if one.digests[name] != other.digests.get(name)]
        if names:
            return f"launch {index}, {one.program}, left other bits in {', '.join(names)}"
    if len(expected) != len(found):
        return f"{len(found)} launches ran and not {len(expected)}"
    return None


def digest(content: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()
