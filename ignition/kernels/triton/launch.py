"""What every kernel shares: how it follows the kernel before it, and its one matrix product.

A kernel starts while the one before it still runs (programmatic dependent launch). Until `wait_for_previous` it may
read weights alone, which no kernel writes, and what a launch begins with (`token_state`); after it, everything that
earlier kernels wrote is visible. Every program of every kernel waits, so a kernel's end implies the end of all before
it, and memory may be reused in launch order.
"""

from typing import Any

import triton
import triton.language as tl
from triton import knobs
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

INTERPRETED = tl.constexpr(bool(knobs.runtime.interpret))
"""Whether kernels run in Triton's interpreter: no inline assembly, one program after another, no BF16 arithmetic."""


def dependent() -> dict[str, Any]:
    """The launch option of a kernel that follows the previous one as above."""
    return {"launch_pdl": not INTERPRETED.value}


@triton.jit
def wait_for_previous():
    """Wait until the kernel before has ended; let the next one start."""
    if not INTERPRETED:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def multiply(a, b, acc):
    """acc + a b of BF16 tiles, summed in FP32."""
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, acc)
