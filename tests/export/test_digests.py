"""Digests of blocks: the same whatever hashes them, in the blocks' order."""

import hashlib

from ignition.digests import block_digests


def test_digests_come_in_the_blocks_order_and_few_blocks_are_held(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    given = 0

    def blocks():
        nonlocal given
        for index in range(40):
            given += 1
            yield bytes([index]) * (1 + index % 5)

    expected = [hashlib.sha256(bytes([index]) * (1 + index % 5)).digest() for index in range(40)]
    for index, digest in enumerate(block_digests(blocks())):
        assert digest == expected[index]
        assert given <= index + 4
    assert list(block_digests([])) == []
