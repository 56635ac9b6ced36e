"""Drives programs through requests as the runtime does: admission, chunks, decode rounds, checkpoints.

Measurement and verification use it on any machine that can take bytes, launch a program and give bytes back. It
imports no torch, so that a fresh process can verify a core without one.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

SLOT_EMPTY = -1
PAGE_UNMAPPED = -1
FIELDS = 16
PARAMETERS = 8


class Machine(Protocol):
    """Something that holds a core's memory and runs its programs, by the names of sources and programs."""

    def upload(self, source: str, values: NDArray[np.generic], *, offset_bytes: int = 0) -> None:
        """Copy values into a buffer."""

    def launch(self, program: str) -> None:
        """Run a program to its end."""

    def read(self, source: str) -> bytes:
        """A buffer's bytes."""


@dataclass(frozen=True)
class DriverLimits:
    """Sizes that requests have to keep to."""

    slots: int
    lanes: int
    vocabulary: int
    context_tokens_max: int
    page_tokens: int
    pages: int
    prefill_capacities: tuple[int, ...]
    decode_capacities: tuple[int, ...]
    completion_fields: int
    token_capacity: int


@dataclass
class Request:
    """A request in a slot, as far as the driver has to know it."""

    slot: int
    epoch: int
    prompt: NDArray[np.int64]
    pages: list[int] = field(default_factory=list)
    consumed: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """A frozen endpoint: its row, and the complete pages of its history, which outlive the request."""

    row: int
    consumed: int
    pages: tuple[int, ...]


@dataclass
class Driver:
    """Assigns slots' pages and epochs and issues commands. It checks nothing: results are the caller's to read."""

    machine: Machine
    limits: DriverLimits
    last_epoch: int = 0
    frame: int = 0

    def __post_init__(self) -> None:
        # Taken from the end: logical neighbours lie in descending pages, never as a contiguous history would.
        self._free_pages = list(range(self.limits.pages))
        self._table = np.full(
            (self.limits.slots, -(-self.limits.context_tokens_max // self.limits.page_tokens)), PAGE_UNMAPPED, np.int32
        )
        self.machine.upload("page_table", self._table)

    def admit(
        self,
        slot: int,
        prompt: ArrayLike,
        *,
        seed: int = 1,
        output_limit: int = 1 << 20,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        penalties: tuple[float, float, float] = (1.0, 0.0, 0.0),
        logprobs: int = -1,
    ) -> Request:
        """Initialize a slot with a fresh epoch. `penalties` are repetition, presence, frequency."""
        self.last_epoch += 1
        tokens = np.asarray(prompt, dtype=np.int64)
        fields = np.zeros(FIELDS, np.int64)
        fields[[0, 4, 6, 7, 8, 9, 10]] = (self.last_epoch, -1, seed, top_k, output_limit, 1, logprobs)
        parameters = np.zeros(PARAMETERS, np.float32)
        parameters[:6] = (temperature, top_p, min_p, *penalties)
        self.machine.upload("admission_command", command(slot, len(tokens)))
        self.machine.upload("admission_fields", fields)
        self.machine.upload("admission_parameters", parameters)
        self.machine.upload("admission_prompt", tokens)
        self._launch("initialize")
        return Request(slot, self.last_epoch, tokens)

    def prefill(
        self, request: Request, count: int, *, capacity: int | None = None, sample: bool = False, masked: bool = False
    ) -> None:
        """Consume the next `count` prompt tokens, at the smallest capacity that holds them unless told."""
        self.grow(request, request.consumed + count)
        if capacity is None:
            capacity = next(one for one in self.limits.prefill_capacities if one >= count)
        chunk = request.prompt[request.consumed : request.consumed + count]
        self.machine.upload("prefill_tokens", chunk)
        fields = (request.slot, request.epoch, request.consumed, count, int(sample), int(masked))
        self.machine.upload("prefill_command", command(*fields))
        self._launch(f"prefill.{capacity}")
        request.consumed += count

    def decode(self, requests: list[Request | None], *, capacity: int | None = None, masked: bool = False) -> None:
        """One token for each lane's request; None is an empty lane."""
        if capacity is None:
            capacity = next(one for one in self.limits.decode_capacities if one >= len(requests))
        for request in requests:
            if request is not None:
                self.grow(request, request.consumed + 1)
        self._lanes([*requests, *[None] * (capacity - len(requests))], masked=masked)
        self._launch(f"decode.{capacity}")
        for request in requests:
            if request is not None:
                request.consumed += 1

    def resume(self, request: Request) -> None:
        """Sample from a restored request's saved hidden vector."""
        self._lanes([request], masked=False)
        self._launch("resume.1")

    def snapshot(self, request: Request, row: int) -> Checkpoint:
        """Freeze a request's consumed state into a row."""
        complete, partial = divmod(request.consumed, self.limits.page_tokens)
        page = request.pages[complete] if partial else PAGE_UNMAPPED
        self.machine.upload("state_command", command(request.slot, request.epoch, row, request.consumed, page))
        self._launch("snapshot")
        return Checkpoint(row, request.consumed, tuple(request.pages[:complete]))

    def restore(self, request: Request, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint, whose pages are the request's from here on; the partial one is its own."""
        request.pages = list(checkpoint.pages)
        self._map(request)
        self.grow(request, checkpoint.consumed)
        complete, partial = divmod(checkpoint.consumed, self.limits.page_tokens)
        page = request.pages[complete] if partial else PAGE_UNMAPPED
        words = command(request.slot, request.epoch, checkpoint.row, checkpoint.consumed, page)
        self.machine.upload("state_command", words)
        self._launch("restore")
        request.consumed = checkpoint.consumed

    def reset(self, request: Request, *, keep: Checkpoint | None = None) -> None:
        """Empty a request's slot; its pages are free again, but for those of a checkpoint to keep."""
        self.machine.upload("state_command", command(request.slot, request.epoch))
        self._launch("reset")
        kept = keep.pages if keep is not None else ()
        self._free_pages.extend(page for page in request.pages if page not in kept)
        self._table[request.slot] = PAGE_UNMAPPED
        self._upload_table(request.slot)

    def grow(self, request: Request, tokens: int) -> None:
        """Map pages for a history of `tokens`."""
        needed = -(-tokens // self.limits.page_tokens)
        if needed > len(request.pages):
            request.pages.extend(self._free_pages.pop() for _ in range(needed - len(request.pages)))
            self._map(request)

    def completion(self, lane: int = 0) -> NDArray[np.int64]:
        """A lane's record of the last launch."""
        width = self.limits.completion_fields + self.limits.token_capacity
        records = np.frombuffer(self.machine.read("completion"), np.int64).reshape(-1, self.limits.lanes, width)
        record: NDArray[np.int64] = records[self.frame, lane]
        return record

    def _lanes(self, requests: list[Request | None], *, masked: bool) -> None:
        slots = [SLOT_EMPTY if request is None else request.slot for request in requests]
        epochs = [0 if request is None else request.epoch for request in requests]
        self.machine.upload("lane_slots", np.array(slots, np.int64))
        self.machine.upload("lane_epochs", np.array(epochs, np.int64))
        self.machine.upload("lane_masked", np.full(len(requests), int(masked), np.int64))

    def _map(self, request: Request) -> None:
        self._table[request.slot, : len(request.pages)] = request.pages
        self._upload_table(request.slot)

    def _upload_table(self, slot: int) -> None:
        row = self._table[slot]
        self.machine.upload("page_table", row, offset_bytes=slot * row.nbytes)

    def _launch(self, program: str) -> None:
        self.frame = 1 - self.frame
        self.machine.upload("frame", np.array([self.frame], np.int64))
        self.machine.launch(program)


def command(*fields: int) -> NDArray[np.int64]:
    """Eight words, the rest zero."""
    words = np.zeros(8, np.int64)
    words[: len(fields)] = fields
    return words
