"""Attention over scattered pages against float64, with edges in every direction."""

import pytest
import torch
from tensors import BF16_ULP, DEVICE, bf16

from ignition.kernels.triton import attention, pages
from ignition.kernels.triton.attention import Config

SCALE = 0.3
LENGTHS = (130, 1, 200)


class Cache:
    """Pages of some slots in no order, filled with NaN where nothing was written."""

    def __init__(self, heads, width, lengths=LENGTHS):
        """Every slot has as many random tokens as `lengths` says."""
        slots, blocks = len(lengths), -(-max(lengths) // 64)
        self.stride = 4 * 64 * heads * width + 4096
        self.offsets = (64, 64 + 2 * 64 * heads * width)
        pages = slots * blocks + 3
        self.memory = torch.full((pages * self.stride,), 255, dtype=torch.uint8, device=DEVICE)
        order = torch.randperm(pages, generator=torch.Generator().manual_seed(1))[: slots * blocks]
        self.table = order.to(torch.int32).view(slots, blocks).to(DEVICE)
        self.keys = [bf16(count, heads, width, seed=10 + slot) for slot, count in enumerate(lengths)]
        self.values = [bf16(count, heads, width, seed=20 + slot) for slot, count in enumerate(lengths)]

    def write(self, slot, begin, end):
        """Writes positions of a slot."""
        positions = torch.arange(begin, end, device=DEVICE)
        slots = torch.full_like(positions, slot)
        pages.kv_write(
            *(self.keys[slot][begin:end].contiguous(), self.values[slot][begin:end].contiguous(), slots, positions),
            *(self.table, self.memory, self.stride, *self.offsets),
        )

    @property
    def place(self):
        """What an operator takes of the cache, the heads apart."""
        return (self.stride, *self.offsets)


def exact(query, keys, values, window):
    """One row's attention over keys and values [n, Hk, D], itself last, in float64; and what its error may be."""
    first = max(0, len(keys) - window) if window else 0
    group = query.shape[0] // keys.shape[1]
    keys, values = (x[first:].double().repeat_interleave(group, 1) for x in (keys, values))
    weights = (torch.einsum("hd,nhd->hn", query.double(), keys) * SCALE).softmax(-1)
    # Weights and the result are rounded to BF16.
    bound = BF16_ULP * (torch.einsum("hn,nhd->hd", weights, values.abs()) + 1e-3) * 2
    return torch.einsum("hn,nhd->hd", weights, values), bound


def rotated(x, cosines, sines):
    """x [H, D] rotated."""
    left, right = x.float().chunk(2, -1)
    return (x.float() * cosines.float() + torch.cat((-right, left), -1) * sines.float()).bfloat16()


GEOMETRIES = [(4, 2, 16, 4, 0), (6, 2, 48, 1, 0), (8, 2, 64, 2, 70), (3, 1, 80, 8, 0)]


@pytest.mark.parametrize(("heads", "key_heads", "width", "splits", "window"), GEOMETRIES)
def test_decode_rotates_writes_and_attends(heads, key_heads, width, splits, window):
    """Rows of three slots and padding between them; the new key and value are seen and lie in the page."""
    cache = Cache(key_heads, width)
    for slot, count in enumerate(LENGTHS):
        if count > 1:
            cache.write(slot, 0, count - 1)
    slots = torch.tensor([2, -1, 0, 1], device=DEVICE)
    positions = torch.tensor([199, 0, 129, 0], device=DEVICE)
    qkv = bf16(4, (heads + 2 * key_heads) * width, seed=3)
    angles = torch.randn(4, width // 2, generator=torch.Generator().manual_seed(4)).double()
    cosines, sines = (torch.cat((f(angles), f(angles)), -1).bfloat16().to(DEVICE) for f in (torch.cos, torch.sin))
    y = attention.rotary_attention(
        *(qkv, cosines, sines, slots, positions, cache.table, cache.memory, heads, key_heads, *cache.place),
        *(SCALE, window, 256, Config(splits=splits)),
    )
    # The plain operator sees what was written.
    queries = torch.stack([rotated(qkv[i].view(-1, width)[:heads], cosines[i], sines[i]) for i in range(4)])
    again = attention.attention(
        *(queries, slots, positions, cache.table, cache.memory, key_heads, *cache.place),
        *(SCALE, window, 256, Config(splits=splits)),
    )
    assert torch.all(y[1] == 0) and torch.all(again[1] == 0)
    for row in (0, 2, 3):
        slot, parts = int(slots[row]), qkv[row].view(-1, width)
        key = rotated(parts[heads : heads + key_heads], cosines[row], sines[row])
        keys = torch.cat((cache.keys[slot][:-1], key[None]))
        values = torch.cat((cache.values[slot][:-1], parts[heads + key_heads :][None]))
        expected, bound = exact(queries[row], keys, values, window)
        for found in (y, again):
            assert torch.all((found[row].double() - expected).abs() <= bound)


@pytest.mark.parametrize(("heads", "key_heads", "width", "splits", "window"), GEOMETRIES)
def test_a_chunk_attends_to_its_past_and_itself(heads, key_heads, width, splits, window):
    """A chunk that begins in a page, with padding last."""
    cache = Cache(key_heads, width)
    cache.write(0, 0, 110)
    live, rows = 70, 80
    query = bf16(rows, heads, width, seed=5)
    slots = torch.tensor([0] * live + [-1] * (rows - live), device=DEVICE)
    positions = torch.tensor([*range(40, 40 + live), *[0] * (rows - live)], device=DEVICE)
    y = attention.attention(
        *(query, slots, positions, cache.table, cache.memory, key_heads, *cache.place),
        *(SCALE, window, 256, Config(block_tokens=32 // (heads // key_heads))),
    )
    assert torch.all(y[live:] == 0)
    for row in range(live):
        expected, bound = exact(query[row], cache.keys[0][: 41 + row], cache.values[0][: 41 + row], window)
        assert torch.all((y[row].double() - expected).abs() <= bound)


WHOLE, FIRST = 2100, 2010
"""A history of 33 blocks of a page, so that rows of one tile divide it into two parts differently."""


def attend_chunk(cache, query, first, live, config, window):
    """Attention of a chunk of slot 0 that begins at `first`, of `query` at its positions, then padding."""
    rows = torch.cat((query[first : first + live], query.new_zeros(96 - live, *query.shape[1:])))
    slots = torch.tensor([0] * live + [-1] * (96 - live), device=DEVICE)
    positions = torch.tensor([*range(first, first + live), *[0] * (96 - live)], device=DEVICE)
    return attention.attention(
        *(rows, slots, positions, cache.table, cache.memory, cache.keys[0].shape[1], *cache.place),
        *(SCALE, window, 4096, config),
    )


@pytest.mark.parametrize("window", [0, 700])
@pytest.mark.parametrize("splits", [1, 2])
def test_a_row_after_a_long_history_is_the_same_in_every_chunk(splits, window):
    """Within rounding of float64, and the same bits wherever the chunk begins and ends."""
    config = Config(splits, block_tokens=48)
    cache = Cache(1, 64, (WHOLE,))
    cache.write(0, 0, WHOLE)
    query = bf16(WHOLE, 2, 64, seed=5)
    y = attend_chunk(cache, query, FIRST, 90, config, window)
    assert torch.all(y[90:] == 0)
    for row in range(0, 90, 7):
        end = FIRST + row + 1
        expected, bound = exact(query[end - 1], cache.keys[0][:end], cache.values[0][:end], window)
        assert torch.all((y[row].double() - expected).abs() <= bound)
    again = attend_chunk(cache, query, FIRST + 21, 40, config, window)
    assert torch.equal(again[:40], y[21:61])
