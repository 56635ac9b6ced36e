"""A model that is prepared on the device: verified bit by bit, fused throughout, and not raced a second time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

if torch.cuda.device_count() == 0:
    pytest.skip("there is no CUDA device on this machine", allow_module_level=True)

from tests.recipes import tiny_checkpoints

ROOT = Path(__file__).parents[2]
WIDE = {"hidden_size": 256, "intermediate_size": 512}


def ignition(cache, *arguments):
    """Run the command in a process of its own, since a preparation takes fixed addresses."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-m", "ignition", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_a_prepared_core_is_verified_and_a_second_preparation_races_nothing(tmp_path, monkeypatch):
    for name, size in WIDE.items():
        monkeypatch.setitem(tiny_checkpoints.SIZES, name, size)
    checkpoint = tiny_checkpoints.save_checkpoint(
        tiny_checkpoints.canonical_model("llama-llama3-rope"), tmp_path / "model"
    )
    sizes = ("--max-concurrency", 2, "--context", 512, "--prefill-chunk-size", 128)
    reports = []
    for core in (tmp_path / "first", tmp_path / "second"):
        # The command verifies what it exported in a fresh process before it succeeds.
        ignition(tmp_path / "cache", "prepare", checkpoint, "-o", core, "--device", "cuda", *sizes)
        reports.append(json.loads((core / "preparation.json").read_text()))
    cold, warm = (report["selected_plans"] for report in reports)
    assert cold["trials"] > 0
    assert cold["cache_hits"] == 0
    assert warm["trials"] == 0
    assert warm["cache_hits"] == len(cold["selections"])
    assert reports[0]["fused_operators"]["flare.rotary_attention.default"] == 3
    assert "is sound" in ignition(tmp_path / "cache", "verify", tmp_path / "second")
    assert "device       cuda" in ignition(tmp_path / "cache", "inspect", tmp_path / "second")
