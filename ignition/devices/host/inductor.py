"""Inductor's C++ kernels without Python, in one module with the operators.

Inductor generates kernels and a wrapper that calls them; its own build and bindings are left out. Each kernel is
built into the module twice, with an OpenMP team and without, as a uniform entry that Ignition calls while it records
and Helios calls while it serves: the same machine code, so what was recorded is what is replayed.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch._inductor.config as inductor_config
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.output_code import CompiledFxGraph

from ignition.errors import PreparationError
from ignition.kernels.host import entries
from ignition.kernels.host.build import Builder, Compilation, IsaTier, include_flags

# Inductor's own flags for its kernels: with GCC's loop vectorizer on, or with another CPU_CAPABILITY, the same sources
# give different numbers.
_KERNEL_FLAGS = (
    *("-std=c++20", "-O3", "-DNDEBUG", "-fPIC", "-w"),
    *("-fno-trapping-math", "-fno-signed-zeros", "-fno-finite-math-only", "-fno-unsafe-math-optimizations"),
    *("-fmath-errno", "-ffp-contract=off", "-fexcess-precision=fast", "-fno-tree-loop-vectorize"),
    *("-DTORCH_INDUCTOR_CPP_WRAPPER", "-DSTANDALONE_TORCH_HEADER", "-DC10_USING_CUSTOM_GENERATED_MACROS"),
)
_KERNEL_DEFINITION = re.compile(r'extern "C"\s+void\s+kernel\(')
_INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)

SERIAL_SUFFIX = "_serial"

SOURCE_THREADS = 16
"""Threads that kernel sources are shaped for. The count in use is the team's at run time; a constant keeps the sources,
and with them the bits, independent of the preparing machine."""


def inductor_settings(tier: IsaTier) -> dict[str, Any]:
    """Inductor's configuration for kernels that Flare records."""
    return {
        "cpp.dynamic_threads": True,
        "cpp.threads": SOURCE_THREADS,
        "cpp.simdlen": tier.vector_bits,
        "cpp.vec_isa_ok": True,
        "cpp_wrapper": False,
        # Fused kernels round where eager BF16 rounds.
        "emulate_precision_casts": True,
        "compile_threads": 1,
        "size_asserts": False,
        "freezing": False,
        "max_autotune": False,
    }


class InductorKernel:
    """One generated kernel, called as the wrapper calls it: tensors and integers in the order of its parameters."""

    def __init__(self, argument_types: list[str], source: str, owner: "KernelCollector") -> None:
        self.argument_types = argument_types
        self.source = source
        self.symbol = "inductor_" + hashlib.sha256(source.encode()).hexdigest()[:16]
        self._owner = owner

    @property
    def variants(self) -> tuple[str, str]:
        """The entry with a team, and the one without."""
        return (self.symbol, self.symbol + SERIAL_SUFFIX)

    def __call__(self, *arguments: entries.Argument) -> None:
        words = tuple(entries.to_word(argument) for argument in arguments)
        entries.call_words(self._owner.select(self, words), words)


@dataclass
class KernelCollector:
    """The kernels of the graphs compiled inside `collecting`, and which variant of each a call runs."""

    kernels: dict[str, InductorKernel] = field(default_factory=dict)
    select: Callable[[InductorKernel, tuple[int, ...]], str] = lambda kernel, _: kernel.symbol

    def add(self, argument_types: list[str], source: str) -> InductorKernel:
        """A kernel by its source; equal sources are one kernel."""
        kernel = InductorKernel(argument_types, source, self)
        return self.kernels.setdefault(kernel.symbol, kernel)


@contextmanager
def collecting(collector: KernelCollector, tier: IsaTier) -> Iterator[None]:
    """Compile with Flare's settings; kernel sources go to the collector and not to Inductor's build."""

    def collect(_: AsyncCompile, argument_types: list[str], source: str) -> InductorKernel:
        return collector.add(argument_types, source)

    with (
        patch.object(AsyncCompile, "cpp_pybinding", collect),
        inductor_config.patch(inductor_settings(tier)),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        yield


def wrapper_call(graph: CompiledFxGraph) -> Callable[[list[Any]], Any]:
    """The generated wrapper's entry point, with its outputs and intermediates allocated by the recorder."""
    call = graph.current_callable
    assert call is not None
    namespace = getattr(call, "__func__", call).__globals__
    if "empty_strided_cpu" not in namespace:
        raise PreparationError("Inductor's wrapper has no empty_strided_cpu; this release of torch is not supported")
    namespace["empty_strided_cpu"] = lambda shape, stride, dtype: entries.allocate(shape, dtype, stride)
    return call


def build_module(kernels: dict[str, InductorKernel], builder: Builder) -> Path:
    """One shared object of the operators and every kernel in both variants.

    It refers to nothing but the C and C++ libraries and the OpenMP runtime: any other name fails the link.
    """
    include = Path(torch.__file__).parent / "include"
    capability = f"-DCPU_CAPABILITY_AVX{'512' if builder.tier.vector_bits == 512 else '2'}"
    flags = (*_KERNEL_FLAGS, *builder.tier.flags, capability, *include_flags(include))
    version = torch.__version__.encode()
    compilations = [
        Compilation(kernel_unit(kernels, suffix=""), (*flags, "-fopenmp"), version),
        Compilation(kernel_unit(kernels, suffix=SERIAL_SUFFIX), flags, version),
    ]
    objects = [*builder.operators(), *builder.compile(compilations)]
    return builder.link(objects, libraries=("-Wl,-z,defs", "-lm"))


def kernel_unit(kernels: dict[str, InductorKernel], *, suffix: str) -> str:
    """One translation unit of all kernels, each in a namespace of its own, with uniform entries."""
    includes: dict[str, None] = {}
    parts: list[str] = []
    for symbol, kernel in sorted(kernels.items()):
        includes.update(dict.fromkeys(_INCLUDE.findall(kernel.source)))
        body, count = _KERNEL_DEFINITION.subn("static void kernel(", _INCLUDE.sub("", kernel.source))
        if count != 1:
            raise PreparationError(f"an Inductor kernel defines {count} entry points:\n{kernel.source[:400]}")
        arguments = ", ".join(cast(kind, index) for index, kind in enumerate(kernel.argument_types))
        parts.append(
            f"namespace {symbol}{suffix}_space {{\n{body}\n}}\n"
            f'extern "C" void {symbol}{suffix}(void *const *a) {{ {symbol}{suffix}_space::kernel({arguments}); }}\n'
        )
    return "\n".join([*includes, *parts])


def cast(kind: str, index: int) -> str:
    """How an entry reads a kernel's argument out of its word."""
    if "*" in kind:
        return f"static_cast<{kind}>(a[{index}])"
    if "int64_t" in kind or "long" in kind:
        return f"static_cast<{kind}>(reinterpret_cast<intptr_t>(a[{index}]))"
    raise PreparationError(f"an Inductor kernel takes an argument of type {kind!r}, which a program cannot record")
