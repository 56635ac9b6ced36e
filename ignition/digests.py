"""Digests of more data than one core reads quickly: blocks are hashed side by side, and their digests in order."""

import hashlib
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

THREADS_MAX = 8


def block_digests(blocks: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """The SHA-256 of each block, in order. As many blocks are held at a time as threads hash."""
    threads = min(THREADS_MAX, len(os.sched_getaffinity(0)))
    waiting: deque[Future[bytes]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for block in blocks:
            if len(waiting) == threads:
                yield waiting.popleft().result()
            waiting.append(pool.submit(sha256, block))
        while waiting:
            yield waiting.popleft().result()


def sha256(block: bytes | memoryview) -> bytes:
    """One block's digest."""
    return hashlib.sha256(block).digest()
