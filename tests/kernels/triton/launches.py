"""Records what the operators launch, and compiles it for parts that are not at hand.

The operators run on host memory with every kernel's launch written down instead of made, so a kernel is compiled for
the very arguments, alignments and options that serving gives it.
"""

import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

TYPES = {
    torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64", torch.int32: "i32", torch.int64: "i64",
    torch.uint32: "u32", torch.uint8: "u8",
}  # fmt: skip
OPTIONS = ("num_warps", "num_stages", "launch_pdl", "launch_cooperative_grid")


@dataclass(frozen=True)
class Launch:
    """A kernel as it is launched: what it is compiled from."""

    kernel: JITFunction
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[int, object], ...]
    divisible: tuple[int, ...]
    options: tuple[tuple[str, object], ...]

    @property
    def name(self):
        """The kernel's name."""
        return self.kernel.__name__


@dataclass(frozen=True)
class Resources:
    """What a compiled kernel takes of a part."""

    launch: Launch
    shared_bytes: int
    stack_bytes: int
    ptx: str


def specialize(kernel, arguments, options):
    """A launch as Triton's own launcher would see it: ones become constants, multiples of 16 are known to be."""
    values = dict(zip(kernel.arg_names, arguments, strict=False)) | {
        k: v for k, v in options.items() if k not in OPTIONS
    }
    assert set(values) == set(kernel.arg_names), f"{kernel.__name__} was launched with {sorted(values)}"
    signature, constants, divisible = [], [], []
    for i, name in enumerate(kernel.arg_names):
        value = values[name]
        if kernel.params[i].is_constexpr or (isinstance(value, int) and value == 1):
            signature.append((name, "constexpr"))
            constants.append((i, value))
            continue
        if isinstance(value, torch.Tensor):
            signature.append((name, "*" + TYPES[value.dtype]))
        else:
            signature.append((name, "fp32" if isinstance(value, float) else "i32" if abs(value) < 2**31 else "i64"))
        whole = value.data_ptr() if isinstance(value, torch.Tensor) else value
        if isinstance(whole, int) and whole % 16 == 0:
            divisible.append(i)
    chosen = tuple((name, value) for name, value in options.items() if name in OPTIONS)
    return Launch(kernel, tuple(signature), tuple(constants), tuple(divisible), chosen)


class Recorder:
    """Stands in for every kernel's launch."""

    def __init__(self, monkeypatch):
        """From here on launches are kept in `launches`, each distinct one once."""
        self.launches = []

        def run(kernel, *arguments, grid, warmup, **options):
            launch = specialize(kernel, arguments, options)
            if launch not in self.launches:
                self.launches.append(launch)

        monkeypatch.setattr(JITFunction, "run", run)


def compile_for(launch, capability):
    """Compiles a launch for a compute capability; Triton adds the architecture's `a`."""
    source = ASTSource(
        launch.kernel,
        dict(launch.signature),
        {(i,): value for i, value in launch.constants},
        {(i,): [["tt.divisibility", 16]] for i in launch.divisible},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=dict(launch.options))
    assert f".target sm_{capability}a" in compiled.asm["ptx"], "the architecture's own instructions are not enabled"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        tool = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
        usage = subprocess.run([tool, "-res-usage", cubin.name], capture_output=True, text=True, check=True).stdout
    stack = max(int(size) for size in re.findall(r"STACK:(\d+)", usage))
    return Resources(launch, compiled.metadata.shared, stack, compiled.asm["ptx"])


def compile_all(launches, capability):
    """Compiles launches, two at a time.

    Python 3.11's parser counts its depth in one place for all threads and may fail where two parse, so they take turns.
    """
    turn, parse = Lock(), JITFunction.parse

    def parse_in_turn(kernel):
        with turn:
            return parse(kernel)

    with ThreadPoolExecutor(2) as pool, patch.object(JITFunction, "parse", parse_in_turn):
        return list(pool.map(lambda launch: compile_for(launch, capability), launches))
