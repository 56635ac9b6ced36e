"""A graph that was captured with torch, written as a core, computes the same bits in a process without torch."""

import ctypes
import random
import struct

import pytest
import torch
from flare_heliopause import Core, CudaArena, HeliopauseError, read_graph

if not torch.cuda.is_available():
    pytest.skip("there is no CUDA device on this machine", allow_module_level=True)

from ignition.export import core_pb2
from tests.cuda.captured_core import replay, write_core
from tests.cuda.mlp import LOGITS, OUT, TOKENS, VOCABULARY, CapturedMlp

SPANS = [(OUT, 8 * TOKENS), (LOGITS, 4 * TOKENS * VOCABULARY)]


@pytest.fixture(scope="module")
def captured(recorder):
    return CapturedMlp()


@pytest.fixture(scope="module")
def written(captured, recorder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("core")
    return folder, write_core(folder, captured.graph, captured.regions, recorder)


def test_what_was_captured_is_what_makes_it_hard(written):
    """Otherwise the comparison below would prove little."""
    _, graph = written
    nodes = [core_pb2.Node.FromString(node) for node in graph.nodes]
    edges = [core_pb2.Edge.FromString(edge) for edge in graph.edges]
    kernels = [core_pb2.Kernel.FromString(kernel) for kernel in graph.kernels]
    launches = [node.launch for node in nodes if node.HasField("launch")]
    assert len(launches) > 4 * 4
    assert any(kernel.symbol.startswith("triton_") for kernel in kernels)
    assert any(not kernel.symbol.startswith("triton_") for kernel in kernels)
    assert any(kernel.max_dynamic_shared_bytes > 48 << 10 for kernel in kernels)
    assert all(edge.to > getattr(edge, "from") for edge in edges)
    if torch.cuda.get_device_capability() == (9, 0):
        assert any(launch.cluster.x * launch.cluster.y * launch.cluster.z > 1 for launch in launches)
        assert any((edge.type, edge.from_port) == (1, 1) for edge in edges)


def test_replay_without_torch_is_torchs_bit_for_bit(captured, written, tmp_path):
    """Whole, and begun before the masks are there: parts read masks that come late, and nothing stale."""
    folder, _ = written
    source = random.Random(7)
    inputs, expected = [], []
    for masks in [None] * 5 + [0.25, -0.5, 0.25, 4.0]:
        ids = [source.randrange(VOCABULARY) for _ in range(TOKENS)]
        inputs.append((struct.pack(f"<{TOKENS}q", *ids), b"" if masks is None else struct.pack("<f", masks)))
        expected.append(captured.replay(ids, masks or 0.0))
    assert len(set(expected)) == len(expected)
    assert captured.replay(ids, 0.25) != expected[-1]
    for index, bits in enumerate(replay(folder, tmp_path, inputs, SPANS)):
        assert bits == expected[index], index


def test_a_core_does_not_load_over_what_it_was_captured_in(written):
    folder, _ = written
    with pytest.raises(HeliopauseError, match="in use in this process already"):
        Core(folder)


def read(work, recorder):
    """Captures `work` and reads the graph."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        work()
    return read_graph(graph.raw_cuda_graph(), recorder)


def fill(tensor):
    """Torch fills with kernels; this is the driver's own fill, on torch's stream."""
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    address, nbytes = ctypes.c_uint64(tensor.data_ptr()), ctypes.c_size_t(tensor.nbytes)
    assert ctypes.CDLL("libcuda.so.1").cuMemsetD8Async(address, ctypes.c_ubyte(7), nbytes, stream) == 0


def test_memory_outside_every_arena_is_refused(recorder):
    x, y = torch.ones(1024, device="cuda"), torch.zeros(1024, device="cuda")
    with pytest.raises(HeliopauseError, match="a parameter of `.*`, uses memory at 0x[0-9a-f]+, which is in no open"):
        read(lambda: torch.add(x, x, out=y), recorder)
    with pytest.raises(HeliopauseError, match="a copy's source, uses memory at"):
        read(lambda: y.copy_(x), recorder)
    with pytest.raises(HeliopauseError, match="a fill's destination, uses memory at"):
        read(lambda: fill(y), recorder)


def test_nodes_that_a_core_cannot_hold_are_refused_by_kind(recorder):
    arena = CudaArena(0x2E00_0000_0000, 2 << 20)
    arena.back(2 << 20)
    y = torch.as_tensor(arena.view(0, 4096), device="cuda")
    event = torch.cuda.Event(external=True)

    def record():
        y.zero_()
        event.record()

    with pytest.raises(HeliopauseError, match="node 1 of the graph is a record of an event"):
        read(record, recorder)
    pinned = torch.zeros(4096, dtype=torch.uint8, pin_memory=True)
    with pytest.raises(HeliopauseError, match="is a copy from or to the host"):
        read(lambda: y.copy_(pinned, non_blocking=True), recorder)
    (node,) = (core_pb2.Node.FromString(node) for node in read(lambda: fill(y), recorder).nodes)
    assert (node.fill.destination, node.fill.elements * node.fill.element_bytes) == (arena.address, 4096)
    assert node.fill.value & 255 == 7
