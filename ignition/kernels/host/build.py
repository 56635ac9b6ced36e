"""Builds C++ for the host's CPU: the ISA tier, the compiler's flags, and a cache of objects by content.

An object's name in the cache is the SHA-256 over the compiler, the flags and every byte that the compilation reads, so
an entry is never stale. Objects hold no path of the machine that built them.
"""

import ctypes
import hashlib
import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ignition.caches import cache_folder
from ignition.errors import PreparationError

SOURCES = Path(__file__).parent
OPERATOR_FLAGS = ("-std=c++20", "-O3", "-ffp-contract=off", "-fPIC", "-fopenmp", "-Wall")

_PATH_FLAGS = ("-I", "-ffile-prefix-map=")


@dataclass(frozen=True)
class IsaTier:
    """A level of the x86-64 instruction set that objects are built for."""

    name: str
    flags: tuple[str, ...]
    features: tuple[str, ...]  # As /proc/cpuinfo spells them, sorted.
    vector_bits: int


_V3_FEATURES = ("abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave")
_V4_FEATURES = tuple(sorted((*_V3_FEATURES, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")))
_V4_BF16_FEATURES = tuple(sorted((*_V4_FEATURES, "avx512_bf16")))
_TILE_FEATURES = {"amx_bf16", "amx_tile"}
TIERS = (
    IsaTier(
        name="x86-64-v4+amx",
        flags=("-march=x86-64-v4", "-mavx512bf16", "-mamx-tile", "-mamx-bf16"),
        features=tuple(sorted((*_V4_BF16_FEATURES, *_TILE_FEATURES))),
        vector_bits=512,
    ),
    IsaTier(
        name="x86-64-v4+avx512bf16",
        flags=("-march=x86-64-v4", "-mavx512bf16"),
        features=_V4_BF16_FEATURES,
        vector_bits=512,
    ),
    IsaTier(name="x86-64-v4", flags=("-march=x86-64-v4",), features=_V4_FEATURES, vector_bits=512),
    IsaTier(name="x86-64-v3", flags=("-march=x86-64-v3",), features=_V3_FEATURES, vector_bits=256),
)


@cache
def detect_tier() -> IsaTier:
    """The highest tier that this CPU has and its kernel permits. Raises `PreparationError` for one below x86-64-v3."""
    held: set[str] = set()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            held = set(line.partition(":")[2].split())
            break
    if held.issuperset(_TILE_FEATURES) and not request_tiles():
        held -= _TILE_FEATURES
    for tier in TIERS:
        if held.issuperset(tier.features):
            return tier
    missing = ", ".join(sorted(set(_V3_FEATURES) - held))
    raise PreparationError(
        f"this CPU lacks {missing}; the host device needs x86-64-v3 (AVX2 and FMA): prepare on a newer machine"
    )


def request_tiles() -> bool:
    """Ask the kernel to let this process use AMX tiles; a sandbox may refuse."""
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return bool(ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0)


@dataclass
class Builder:
    """Compiles and links for one tier; counts what the cache already held."""

    tier: IsaTier
    cache_folder: Path = field(default_factory=lambda: cache_folder("objects"))
    hits: int = 0
    misses: int = 0

    def operators(self) -> list[Path]:
        """Objects of every operator source of this folder."""
        headers = b"".join(path.read_bytes() for path in sorted(SOURCES.glob("*.h")))
        sources = sorted(SOURCES.glob("*.cpp"))
        flags = (*OPERATOR_FLAGS, *self.tier.flags, *include_flags(SOURCES))
        return self.compile([Compilation(path.read_text(), flags, headers) for path in sources])

    def compile(self, compilations: Sequence["Compilation"]) -> list[Path]:
        """Objects of the compilations, in order; those missing from the cache are compiled side by side.

        Raises `PreparationError` with the compiler's own words.
        """
        with ThreadPoolExecutor(max_workers=max(1, len(os.sched_getaffinity(0)))) as pool:
            return list(pool.map(self._compile_one, compilations))

    def link(self, objects: Sequence[Path], *, libraries: Sequence[str] = ()) -> Path:
        """One shared object of the objects, in the cache."""
        command = ["g++", "-shared", "-fopenmp", "-Wl,--build-id=none", "-Wl,-z,now"]
        key = digest(compiler_version(), *command, *libraries, *(path.name for path in objects))
        return self._cached(f"{key}.so", lambda path: run([*command, "-o", str(path), *map(str, objects), *libraries]))

    def _compile_one(self, compilation: "Compilation") -> Path:
        # Where headers lie is not part of the object, and what they say is in the key.
        named = [next((path for path in _PATH_FLAGS if flag.startswith(path)), flag) for flag in compilation.flags]
        key = digest(compiler_version(), *named, compilation.source, compilation.headers)
        command = ["g++", *compilation.flags, "-x", "c++", "-c", "-", "-o"]
        return self._cached(f"{key}.o", lambda path: run([*command, str(path)], source=compilation.source))

    def _cached(self, name: str, produce: Callable[[Path], None]) -> Path:
        target = self.cache_folder / name
        if target.is_file():
            self.hits += 1
            return target
        self.misses += 1
        self.cache_folder.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{name}.{os.getpid()}")
        produce(partial)
        partial.rename(target)
        return target


@dataclass(frozen=True)
class Compilation:
    """One translation unit: its text, its flags, and the bytes of headers of ours that it includes."""

    source: str
    flags: tuple[str, ...]
    headers: bytes = b""


def include_flags(folder: Path) -> tuple[str, str]:
    """Find headers in a folder, and leave its path out of the object."""
    return (f"-I{folder}", f"-ffile-prefix-map={folder}=include")


@cache
def compiler_version() -> str:
    """The compiler's name and version. Raises `PreparationError` where there is none."""
    try:
        shown = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PreparationError(f"g++ does not run ({error}); the host device needs g++ 12 or newer") from error
    return shown.stdout.splitlines()[0]


def run(command: Sequence[str], *, source: str | None = None) -> None:
    """Run the compiler. Raises `PreparationError` with the end of what it printed."""
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PreparationError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")


def digest(*parts: str | bytes) -> str:
    """SHA-256 in hex over parts, each with its length."""
    state = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        state.update(len(content).to_bytes(8, "little"))
        state.update(content)
    return state.hexdigest()
