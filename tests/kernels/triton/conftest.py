"""The host's operators and the Triton kernels behind one way to call them: `call(NAME, *arrays and numbers)`."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from library import aligned, pack_arguments  # noqa: E402
from tensors import DEVICE  # noqa: E402

from ignition.kernels.host import entries  # noqa: E402
from ignition.kernels.triton import sampling, state, token_state  # noqa: E402


class Host:
    """Entries of the host's library."""

    def call(self, name, *arguments):
        """One call."""
        entries.library().entry("flare_" + name)(pack_arguments(*arguments))

    def scratch(self, name, *sizes):
        """Memory for one call."""
        return aligned(entries.library().measure_bytes(f"flare_{name}_scratch_bytes", *sizes))


class Kernels:
    """The Triton kernels, given what the host's entry takes."""

    def call(self, name, *arguments):
        """One call; every array is what the kernels left in it."""
        tensors = [torch.from_numpy(a).to(DEVICE) if isinstance(a, np.ndarray) else a for a in arguments]
        getattr(self, name)(*tensors)
        for array, tensor in zip(arguments, tensors, strict=True):
            if isinstance(array, np.ndarray) and DEVICE != "cpu":
                torch.from_numpy(array).copy_(tensor)

    def scratch(self, *_):
        """A kernel allocates its own."""
        return np.zeros(0, np.uint8)

    def sample(self, *arguments):
        """Sizes come from the tensors."""
        tensors, (eos_count, _, token_capacity, _, family) = arguments[:13], arguments[18:]
        sampling.sample(*tensors[:8], tensors[8][:eos_count], *tensors[9:13], token_capacity, family)

    def begin_decode(self, slots, epochs, masked, fields, tokens, positions, token_slots, lanes, b, _, v, context):
        """Results are returned, the host's written."""
        copy_all(
            token_state.begin_decode(slots, epochs, masked, fields, b, v, context),
            tokens,
            positions,
            token_slots,
            lanes,
        )

    def begin_prefill(self, command, prefill, fields, tokens, positions, token_slots, lanes, t, _, v, context):
        """Results are returned, the host's written."""
        copy_all(
            token_state.begin_prefill(command, prefill, fields, t, v, context), tokens, positions, token_slots, lanes
        )

    def begin_resume(self, slots, epochs, masked, fields, rows, hidden, lanes, b, _, h, *geometry):
        """Results are returned, the host's written."""
        copy_all(token_state.begin_resume(slots, epochs, masked, fields, rows, b, h, *geometry), hidden, lanes)

    def commit_decode(self, hidden, lanes, fields, rows, b, _, *geometry):
        """The first lanes count."""
        token_state.commit_decode(hidden.view(torch.bfloat16), lanes[:b], fields, rows, *geometry)

    def commit_prefill(self, hidden, command, lanes, fields, rows, last, _, __, *geometry):
        """The result is returned, the host's written."""
        copy_all(
            (token_state.commit_prefill(hidden.view(torch.bfloat16), command, lanes, fields, rows, *geometry),), last
        )

    def initialize(self, *arguments):
        """Sizes come from the tensors."""
        state.initialize(*arguments[:13], arguments[16], arguments[18])

    def restore(self, *arguments):
        """Sizes come from the tensors."""
        state.restore(*arguments[:6], *arguments[7:15], arguments[16])

    def snapshot(self, *arguments):
        """Sizes come from the tensors."""
        state.snapshot(*arguments[:6], *arguments[7:15], arguments[16])

    def reset(self, *arguments):
        """Sizes come from the tensors."""
        state.reset(*arguments[:4], arguments[6])


def copy_all(results, *places):
    """Copies what a kernel returned to where the host would have written it."""
    for result, place in zip(results, places, strict=True):
        place.view(-1).copy_(result.view(place.dtype).view(-1))


@pytest.fixture(scope="session")
def host():
    """The host's operators."""
    return Host()


@pytest.fixture(scope="session")
def kernels():
    """The Triton kernels; the host's own tests call them by this name."""
    return Kernels()
