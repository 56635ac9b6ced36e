"""Requests on an exported core, one launch at a time, with every logit in view.

The core is loaded and run by Helios. A step may be given the token that it consumes, so that any text can be followed.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ignition.export import core_pb2
from ignition.export.corefile import CoreReader
from ignition.export.verify import CoreMachine, limits_of
from ignition.preparation.driver import FIELDS, Driver, Request

Logits = NDArray[np.float32]


class Replay:
    """A loaded core and its pool of pages."""

    def __init__(self, folder: Path, *, pages: int = 64) -> None:
        with CoreReader(folder) as reader:
            contract = core_pb2.PreparedContract.FromString(reader.read("contract"))
        self.limits = limits_of(contract, pages=pages)
        self.machine = CoreMachine(folder, rows=1 + self.limits.slots * contract.state.rows_per_slot, pages=pages)
        self.driver = Driver(self.machine, self.limits)

    def close(self) -> None:
        """Unmap the core."""
        self.machine.close()

    def ban(self, tokens: Sequence[int]) -> None:
        """Never sample these in a masked launch."""
        masks = np.full((self.limits.lanes, -(-self.limits.vocabulary // 32)), 0xFFFFFFFF, np.uint32)
        for token in tokens:
            masks[:, token // 32] &= np.uint32(0xFFFFFFFF ^ (1 << token % 32))
        self.machine.upload("grammar_masks", masks)

    def admit(self, slot: int, prompt: Sequence[int]) -> Request:
        """A greedy request in a slot."""
        return self.driver.admit(slot, prompt, top_k=1)

    def prefill(self, request: Request, *, chunks: Sequence[int] | None = None, masked: bool = False) -> Logits:
        """Consume the prompt in chunks (default: of the largest capacity); its last token's logits f32[V]."""
        largest, total = self.limits.prefill_capacities[-1], len(request.prompt)
        sizes = chunks or [min(largest, total - at) for at in range(0, total, largest)]
        assert sum(sizes) == total
        for index, size in enumerate(sizes):
            last = index == len(sizes) - 1
            self.driver.prefill(request, size, sample=last, masked=last and masked)
            self.expect_live([request])
        return self.logits()[0].copy()

    def decode(
        self, requests: Sequence[Request | None], *, capacity: int | None = None, masked: bool = False
    ) -> Logits:
        """One step of the requests in these lanes (None: an empty lane); logits f32[lanes, V]."""
        self.driver.decode(list(requests), capacity=capacity, masked=masked)
        self.expect_live(requests)
        return self.logits()[: len(requests)].copy()

    def pending(self, request: Request) -> int:
        """The token that the request's next step consumes."""
        fields = np.frombuffer(self.machine.read("request_fields"), np.int64).reshape(-1, FIELDS)
        return int(fields[request.slot, core_pb2.REQUEST_FIELD_PENDING])

    def force(self, request: Request, token: int) -> None:
        """Make the request's next step consume this token instead of the one that was sampled."""
        at = request.slot * FIELDS + core_pb2.REQUEST_FIELD_PENDING
        self.machine.upload("request_fields", np.array([token], np.int64), offset_bytes=8 * at)

    def logits(self) -> Logits:
        """The last launch's logits f32[B, V]."""
        return np.frombuffer(self.machine.read("logits"), np.float32).reshape(-1, self.limits.vocabulary)

    def expect_live(self, requests: Sequence[Request | None]) -> None:
        """Every lane that held a request took part in the last launch."""
        for lane, request in enumerate(requests):
            status = self.driver.completion(lane)[core_pb2.COMPLETION_FIELD_STATUS]
            assert request is None or status == core_pb2.COMPLETION_STATUS_LIVE, f"lane {lane} has status {status}"


def follow(
    replay: Replay, prompt: Sequence[int], steps: int, *, banned: Sequence[int]
) -> tuple[list[int], torch.Tensor]:
    """Decode greedily after a prompt, never into a banned token.

    Gives the tokens, and the logits f32[1 + steps, V] at the prompt's end and after each token.
    """
    replay.ban(banned)
    request = replay.admit(0, prompt)
    logits, tokens = [replay.prefill(request, masked=True)], []
    for _ in range(steps):
        tokens.append(replay.pending(request))
        logits.append(replay.decode([request], masked=True)[0])
    replay.driver.reset(request)
    return tokens, torch.from_numpy(np.stack(logits))
