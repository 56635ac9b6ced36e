"""Every kernel compiles for each part that we prepare for, without one at hand, and fits its shared memory."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from launches import Recorder, compile_all  # noqa: E402

SHARED_BYTES = {90: 227 * 1024, 103: 227 * 1024, 120: 99 * 1024, 121: 99 * 1024}
"""What a block may take, by compute capability."""

STACK_BYTES_MAX = {"sample_lane": 256, "attend_row": 256, "attend_tile": 256}
"""Local memory of a thread. Sampling holds a tile of the vocabulary, attention two pages of the widest heads."""

READ_EARLY = {"project_on_vectors", "project_on_tiles", "attend_row", "combine_parts"}
"""Kernels that read weights, what a launch begins with, or former launches' pages before their predecessor ends."""

PROCESSORS = 132
I64, BF16, F32 = torch.int64, torch.bfloat16, torch.float32
HIDDEN, HEADS, KEY_HEADS, INTERMEDIATE, VOCABULARY, CONTEXT = 2048, 32, 8, 8192, 128256, 8192


def empty(*shape, dtype=I64):
    """Memory that no one touches."""
    return torch.empty(shape, dtype=dtype)


def projections():
    """Few rows by the first candidate, with everything that surrounds a projection."""
    from ignition.kernels.triton import linear, projection

    gain, bias = empty(HIDDEN, dtype=BF16), empty(3072, dtype=BF16)
    for rows in (1, 8):
        x = empty(rows, HIDDEN, dtype=BF16)
        linear.norm_linear(x, gain, 1e-5, empty(3072, HIDDEN, dtype=BF16), bias, 3072)
        linear.norm_gated(x, gain, 1e-5, empty(2 * INTERMEDIATE, HIDDEN, dtype=BF16), INTERMEDIATE)
        wide = empty(rows, INTERMEDIATE, dtype=BF16)
        linear.linear_add(wide, empty(HIDDEN, INTERMEDIATE, dtype=BF16), None, x, HIDDEN)
        logits = empty(8, VOCABULARY, dtype=F32)
        linear.vocabulary(x, empty(VOCABULARY, HIDDEN, dtype=BF16), logits, empty(rows, 4), VOCABULARY)
    for config in projection.candidates(projection.Shape(4, INTERMEDIATE, HIDDEN, gated=True, normed=True)):
        if config.lanes:
            x = empty(4, HIDDEN, dtype=BF16)
            weight = empty(2 * INTERMEDIATE, HIDDEN, dtype=BF16)
            linear.norm_gated(x, gain, 1e-5, weight, INTERMEDIATE, config)


def attentions():
    """Decode and prefill at every power-of-two width."""
    from ignition.kernels.triton import attention, pages

    for width in (64, 128, 256):
        segment = 2 * 64 * KEY_HEADS * width
        place = (empty(2, CONTEXT // 64, dtype=torch.int32), empty(4 * segment, dtype=torch.uint8))
        geometry = (2 * segment, 0, segment)
        for rows in (1, 512):
            qkv = empty(rows, (HEADS + 2 * KEY_HEADS) * width, dtype=BF16)
            angles = (empty(rows, width, dtype=BF16), empty(rows, width, dtype=BF16))
            cache = (empty(rows), empty(rows), *place)
            attention.rotary_attention(qkv, *angles, *cache, HEADS, KEY_HEADS, *geometry, 0.125, 0, CONTEXT)
        query = empty(1, HEADS, width, dtype=BF16)
        cache = (empty(1), empty(1), *place)
        attention.attention(query, *cache, KEY_HEADS, *geometry, 0.125, 0, CONTEXT)
        key = empty(512, KEY_HEADS, width, dtype=BF16)
        pages.kv_write(key, key, empty(512), empty(512), *place, *geometry)


def passes():
    """Kernels that pass over rows."""
    from ignition.kernels.triton import rows

    x = empty(512, 2 * INTERMEDIATE, dtype=BF16)
    rows.embedding(empty(1, 512), empty(512), empty(VOCABULARY, HIDDEN, dtype=BF16), VOCABULARY, HIDDEN)
    rows.norm(empty(512, HIDDEN, dtype=BF16), empty(HIDDEN, dtype=BF16), 1e-5)
    rows.gated(x)
    rows.add(x, x)


def states():
    """What launches begin with, commit, sample and maintain."""
    from ignition.kernels.triton import sampling, state, token_state

    slots, row, page = 8, 1 << 20, 1 << 20
    fields, rows, pages = empty(slots, 16), empty(4 * row, dtype=torch.uint8), empty(page, dtype=torch.uint8)
    frame, completion, command = empty(1), empty(2, 8, 24), empty(8)
    lanes, histogram = (empty(8), empty(8), empty(8)), empty(slots, VOCABULARY, dtype=torch.int32)
    bias = (empty(slots, 300), empty(slots, 300, dtype=F32))
    token_state.begin_decode(*lanes, fields, 8, VOCABULARY, CONTEXT)
    token_state.begin_prefill(command, empty(4096), fields, 4096, VOCABULARY, CONTEXT)
    token_state.begin_resume(*lanes, fields, rows, 8, HIDDEN, row, 1, 64)
    token_state.commit_decode(empty(8, HIDDEN, dtype=BF16), empty(8, 4), fields, rows, row, 1, 64)
    token_state.commit_prefill(empty(512, HIDDEN, dtype=BF16), command, empty(1, 4), fields, rows, row, 1, 64)
    for count in (1, 8):
        logprobs = (empty(2, 8, 20), empty(2, 8, 21, dtype=F32))
        masks = empty(8, VOCABULARY // 32, dtype=torch.uint32)
        sampling.sample(
            *(empty(8, VOCABULARY, dtype=F32), empty(count, 4), fields, empty(slots, 8, dtype=F32), histogram, *bias),
            *(masks, empty(2), frame, completion, *logprobs, 8, 2),
        )
    state.initialize(
        *(command, empty(16), empty(8, dtype=F32), empty(CONTEXT), empty(300), empty(300, dtype=F32), fields),
        *(empty(slots, 8, dtype=F32), histogram, *bias, frame, completion, CONTEXT, 8),
    )
    for transfer in (state.restore, state.snapshot):
        transfer(command, fields, rows, pages, frame, completion, HIDDEN, row, 1, 0, 64, 8192, page, 64, 8)
    state.reset(command, fields, frame, completion, 8)


@pytest.fixture(scope="module")
def launches():
    """Every distinct launch of every operator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=PROCESSORS))
        recorder = Recorder(patch)
        for operators in (projections, attentions, passes, states):
            operators()
    return recorder.launches


def test_every_kernel_is_launched(launches):
    """What is launched by `kernel[grid]` anywhere in the folder is among what is compiled here."""
    import re

    import ignition.kernels.triton

    (folder,) = ignition.kernels.triton.__path__
    sources = "".join(path.read_text() for path in Path(folder).glob("*.py"))
    named = set(re.findall(r"^ +(\w+)\[\(?\w", sources, re.MULTILINE)) - {"kernel"}
    assert named | {"project_on_vectors", "project_on_tiles"} == {launch.name for launch in launches}


@pytest.mark.parametrize("capability", SHARED_BYTES)
def test_kernels_compile_and_fit(launches, capability, tmp_path, monkeypatch):
    """Shared memory of a block within the part's, local memory within the stated bound."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for made in compile_all(launches, capability):
        name = made.launch.name
        assert made.shared_bytes <= SHARED_BYTES[capability], (name, made.shared_bytes)
        assert made.stack_bytes <= STACK_BYTES_MAX.get(name, 0), (name, made.stack_bytes)
        early, waits, _ = made.ptx.partition("griddepcontrol.wait")
        if "launch_pdl" in dict(made.launch.options):
            assert waits, name
            assert name in READ_EARLY or not any(access in early for access in ("ld.global", "st.global")), name
