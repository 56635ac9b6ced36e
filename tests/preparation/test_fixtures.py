"""Fixtures give operands that an operator really computes on: checked by running the host's on them."""

import pytest
import torch

import ignition.kernels.host.torch_ops  # noqa: F401 - Registers the host's operators.
from ignition.kernels import ops
from ignition.preparation.fixtures import fixture_of
from tests.recipes.test_llama import allocate

PAGES, PAGE_BYTES = 6, 4 * 64 * 2 * 16 * 2
"""Keys and values of two heads of width 16, twice as many bytes as a page needs."""


def attention_arguments(rows):
    table = torch.full((4, 8), -1, dtype=torch.int32)
    pages = allocate("pages", (PAGES * PAGE_BYTES,), torch.uint8)
    query = torch.zeros((rows, 4, 16), dtype=torch.bfloat16)
    dead = torch.full((rows,), -1)
    return (query, dead, dead, table, pages, 2, PAGE_BYTES, 0, PAGE_BYTES // 4, 0.25, 0, 512)


@pytest.mark.parametrize("rows", [1, 4, 128])
def test_attention_attends_over_live_histories(rows):
    declared = attention_arguments(rows)
    trial = fixture_of("attention")(*declared)()
    declared[4].view(torch.bfloat16).fill_(1.0)
    trial.produce()
    output = ops.attention(*trial.arguments)
    assert torch.equal(output, torch.ones_like(output)), "values are all one, so every live row gives ones"
    assert int(trial.arguments[3].max()) < PAGES
    # Every context ends where it may: a chunk of a prompt follows all of its history.
    assert trial.arguments[2].max() == 511
    assert trial.arguments[2].min() == (511 if rows <= 4 else 512 - rows)


def test_vocabulary_projects_every_lane():
    weight = allocate("weight", (1, 8, 16, 2), torch.bfloat16).fill_(1.0)
    logits = torch.zeros((4, 16))
    lanes = torch.zeros((2, 4), dtype=torch.int64)
    trial = fixture_of("vocabulary")(torch.zeros((2, 16), dtype=torch.bfloat16), weight, logits, lanes, 16)()
    trial.produce()
    ops.vocabulary(*trial.arguments)
    assert (logits[:2] != 0).all()
    assert (logits[2:] == 0).all()


def test_a_producer_gives_the_same_activations_again():
    trial = fixture_of("linear")(torch.zeros((3, 32), dtype=torch.bfloat16), "weight", None)()
    trial.produce()
    first = trial.arguments[0].clone()
    trial.arguments[0].zero_()
    trial.produce()
    assert torch.equal(trial.arguments[0], first)
    assert trial.arguments[1:] == ("weight", None)
    assert first.float().std() > 0.5
