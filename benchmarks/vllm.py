"""vLLM's server on the CPU as a peer of the served benchmarks: its model folder, its command line, its version."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import IO

from benchmarks.eager import load_model
from ignition.checkpoint import open_checkpoint
from scripts.server import Server, free_port
from scripts.smollm2 import ROOT, weights

_NAME = "smollm2"
# It compiles its kernels at every start.
_START_TIMEOUT_S = 300.0


def vllm_command(python: Path, *, lanes: int, context_tokens: int) -> list[str | Path]:
    """`vllm serve` without its port; writes the same weights as a Hugging Face folder first."""
    model = ROOT / "build" / "benchmarks" / "smollm2-bf16"
    if not model.exists():
        unfinished = model.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        _write_folder(unfinished)
        unfinished.rename(model)
    return [
        *(python.with_name("vllm"), "serve", model, "--served-model-name", _NAME),
        *("--max-num-seqs", str(lanes), "--max-model-len", str(context_tokens)),
        *("--enable-prompt-tokens-details", "--host", "127.0.0.1"),
    ]


def start_vllm(command: list[str | Path], log: IO[str]) -> Server:
    """vLLM's server on a free port, ready; its pages take at most 2 GiB."""
    port = free_port()
    settings = {"VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    return Server(
        [*command, "--port", str(port)],
        port=port,
        log=log,
        environment={**os.environ, **settings},
        start_timeout_s=_START_TIMEOUT_S,
    )


def vllm_version(python: Path) -> str:
    """What the installed package says of itself."""
    program = "from importlib.metadata import version; print(version('vllm'))"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _write_folder(folder: Path) -> None:
    load_model().save_pretrained(folder)
    checkpoint = open_checkpoint(str(weights()))
    frontend = checkpoint.frontend
    checkpoint.close()
    (folder / "tokenizer.json").write_bytes(frontend.tokenizer)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": frontend.template,
        "bos_token": frontend.bos_text,
        "eos_token": frontend.eos_text,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
