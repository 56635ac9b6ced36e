"""llama.cpp's server as a peer of the served benchmarks: its model file, its command line, its version."""

import os
import subprocess
from pathlib import Path
from typing import IO

from scripts.server import Server, free_port
from scripts.smollm2 import ROOT, weights


def llama_command(folder: Path, *, lanes: int, context: list[str]) -> list[str | Path]:
    """llama-server's command line without its port; makes its BF16 file from the same GGUF first."""
    model = ROOT / "build" / "benchmarks" / "smollm2-bf16.gguf"
    if not model.exists():
        unfinished = model.with_suffix(".part")
        quantize: list[str | Path] = [folder / "llama-quantize", "--allow-requantize", weights(), unfinished, "BF16"]
        subprocess.run(quantize, check=True, capture_output=True)
        unfinished.rename(model)
    threads = str(len(os.sched_getaffinity(0)))
    return [
        *(folder / "llama-server", "-m", model, "-t", threads, "-np", str(lanes)),
        *context,
        *("--host", "127.0.0.1"),
    ]


def start_llama(command: list[str | Path], log: IO[str]) -> Server:
    """llama-server on a free port, ready."""
    port = free_port()
    return Server([*command, "--port", str(port)], port=port, log=log)


def llama_version(folder: Path) -> str:
    """What the binary says of itself."""
    done = subprocess.run([folder / "llama-server", "--version"], capture_output=True, text=True, check=True)
    return (done.stderr + done.stdout).splitlines()[0].removeprefix("version: ")
