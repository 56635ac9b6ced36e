"""Kernels that may start early and kernels that may not, in one graph."""

import random
import struct

import pytest
import torch

if torch.cuda.device_count() == 0 or torch.cuda.get_device_capability() < (9, 0):
    pytest.skip("there is no CUDA device that starts kernels early on this machine", allow_module_level=True)

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.export import core_pb2
from tests.cuda.captured_core import OWN, Regions, content, replay, write_core

BASE = 0x2100_0000_0000
STEPS = 1 << 20
"""Of the slow kernel, which takes milliseconds: far longer than a kernel takes to start."""


@triton.jit
def slow(source, target, steps):
    """Lets the next kernel start, and writes long after."""
    gdc_launch_dependents()
    value = tl.load(source)
    for _ in range(steps):
        value = value * 1664525 + 1013904223
    tl.store(target, value)


@triton.jit
def wait_and_copy(source, target):
    """May start early: it waits by itself."""
    gdc_wait()
    tl.store(target, tl.load(source))


@triton.jit
def copy(source, target):
    """Must not start early: it reads at once."""
    tl.store(target, tl.load(source))


def run(values):
    """One programmatic edge, which is the first, and two whole ones."""
    first, second, third, fourth, fifth = values
    slow[(1,)](first, second, STEPS)
    wait_and_copy[(1,)](second, third, launch_pdl=True)
    slow[(1,)](third, fourth, STEPS)
    copy[(1,)](fourth, fifth)


def test_each_edge_keeps_its_own_port(recorder, tmp_path):
    """Of edges that are added in one call, driver 580 gives all the ports of the first: the last kernel reads early."""
    regions = Regions(BASE)
    values = [regions.io_tensor(OWN + 4096 * index, [1], torch.int32) for index in range(5)]
    run(values)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        run(values)
    graph.instantiate()
    captured = write_core(tmp_path, graph, regions, recorder)
    edges = [core_pb2.Edge.FromString(edge) for edge in captured.edges]
    assert [(edge.type, edge.from_port) for edge in edges] == [(1, 1), (0, 0), (0, 0)]

    source = random.Random(3)
    inputs, expected = [], []
    for _ in range(3):
        number = source.randrange(1 << 31)
        values[0].fill_(number)
        graph.replay()
        inputs.append((struct.pack("<i", number), b""))
        expected.append(content(values[4]))
    assert len(set(expected)) == len(expected)
    assert replay(tmp_path, tmp_path, inputs, [(OWN + 4096 * 4, 4)]) == expected
