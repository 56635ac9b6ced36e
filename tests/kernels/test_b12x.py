"""b12x, the kernel library of SM120 and SM121, takes the shapes of our models: its plans are declared without a device.

A declaration is metadata: nothing is allocated or compiled. That a plan has configurations on a part says that its
kernels accept the geometry; no core calls them yet (docs/decisions/0024).
"""

from dataclasses import replace

import pytest
import torch
from b12x.attention import paged
from b12x.gemm import bf16_gemv, bf16_vocab_projection
from b12x.preparation import DeviceIdentity

from ignition.preparation.model import PAGE_TOKENS

PARTS = [DeviceIdentity("nvidia", (12, 0), 188, "rtx pro 6000"), DeviceIdentity("nvidia", (12, 1), 48, "gb10")]
"""Of SM120 and SM121, with their multiprocessors."""

HEADS, KEY_HEADS, VOCABULARY, CONTEXT_TOKENS = 32, 8, 128256, 8192
LLAMA_1B, LLAMA_8B = (2048, 64, 8192, 16), (4096, 128, 14336, 32)
"""Hidden size, width of a head, intermediate size, layers."""

ROWS = (1, 2, 4, 8)
BF16, I32 = torch.bfloat16, torch.int32


def on_meta(*shape, dtype=BF16):
    """A tensor without memory."""
    return torch.empty(shape, dtype=dtype, device="meta")


def projections(shape, rows):
    """The plans of a layer's projections, and of the head."""
    hidden, width, intermediate, _ = shape
    sizes = [((HEADS + 2 * KEY_HEADS) * width, hidden), (hidden, HEADS * width)]
    for outputs, inputs in [*sizes, (2 * intermediate, hidden), (hidden, intermediate)]:
        query = bf16_gemv.query_from_call(on_meta(rows, inputs), on_meta(outputs, inputs))
        yield bf16_gemv.plan(query)
    head = {"max_tokens": rows, "in_features": hidden, "out_features": VOCABULARY}
    yield bf16_vocab_projection.plan(bf16_vocab_projection.Caps(device="cuda:0", **head))


def attention(shape, rows):
    """The plan of paged attention over pages as they lie in a core: all layers in a page, heads before tokens."""
    _, width, _, layers = shape
    blocks = CONTEXT_TOKENS // PAGE_TOKENS
    caps = paged.Caps(
        **{"device": "cuda:0", "mode": "decode", "dtype": BF16, "kv_dtype": BF16},
        **{"num_q_heads": HEADS, "num_kv_heads": KEY_HEADS, "head_dim_qk": width, "head_dim_vo": width},
        **{"page_size": PAGE_TOKENS, "max_page_table_width": blocks, "num_cache_pages": rows * blocks},
        **{"max_total_q": rows, "max_batch": rows, "max_work_items": 0, "max_partial_rows": 0, "use_cuda_graph": True},
    )
    segment = KEY_HEADS * PAGE_TOKENS * width
    cache = on_meta(rows * blocks, 2 * layers, segment)[:, 0].view(-1, KEY_HEADS, PAGE_TOKENS, width).transpose(1, 2)
    invocation = paged.invocation_from_tensors(
        caps,
        **dict.fromkeys(("q", "output"), on_meta(rows, HEADS, width)),
        **dict.fromkeys(("k_cache", "v_cache"), cache),
        page_table=on_meta(rows, blocks, dtype=I32),
        cache_seqlens=on_meta(rows, dtype=I32),
        cu_seqlens_q=on_meta(rows + 1, dtype=I32),
    )
    return paged.plan(caps, invocation=invocation)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.product_name)
@pytest.mark.parametrize("shape", [LLAMA_1B, LLAMA_8B], ids=["1b", "8b"])
def test_every_plan_of_a_decode_step_has_configurations(shape, part):
    for rows in ROWS:
        for plan in (*projections(shape, rows), attention(shape, rows)):
            plan.contract.validate_query(plan.query, part)
            space = plan.contract.parameter_space(plan.query, part)
            assert next(iter(space.configurations()), None) is not None, plan.query
    assert not torch.cuda.is_initialized()


def test_a_geometry_that_no_kernel_has_is_refused():
    plan = attention(LLAMA_1B, 1)
    with pytest.raises(ValueError, match="divisible"):
        plan.contract.validate_query(replace(plan.query, kv_heads=5), PARTS[0])
