"""Regions hand out tensors one after another, and give one tensor over several that lie so."""

import pytest
import torch

from ignition.devices.host.memory import HostMemory
from ignition.preparation.storage import Storage


@pytest.fixture
def weights():
    storage = Storage(HostMemory, base=0x4400_0000_0000)
    yield storage.weights
    storage.close()


def test_tensors_that_lie_one_after_another_are_one_without_a_copy(weights):
    first, second = (weights.allocate(name, (rows, 32), torch.bfloat16) for name, rows in (("a", 3), ("b", 5)))
    joined = weights.joined([first, second])
    assert joined.shape == (8, 32)
    second.fill_(2.0)
    assert joined[2].sum() == 0
    assert joined[3:].eq(2.0).all()


@pytest.mark.parametrize(
    ("shapes", "order"),
    [
        pytest.param([(3, 32), (5, 32)], (1, 0), id="another order"),
        pytest.param([(3, 33), (5, 33)], (0, 1), id="a gap from alignment"),
        pytest.param([(4, 32), (4, 64)], (0, 1), id="another width"),
    ],
)
def test_other_tensors_are_not_joined(weights, shapes, order):
    tensors = [weights.allocate(str(index), shape, torch.bfloat16) for index, shape in enumerate(shapes)]
    assert weights.joined([tensors[index] for index in order]) is None
