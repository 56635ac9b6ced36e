"""Runs the checks of this folder in Triton's interpreter.

The interpreter is chosen before Triton is imported and for a whole process, so every file of checks gets one of its
own. On a machine with a GPU the same files run on the device: `pytest tests/kernels/triton/check_*.py`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@pytest.mark.parametrize("checks", sorted(HERE.glob("check_*.py")), ids=lambda path: path.stem)
def test_checks_pass_in_the_interpreter(checks, tmp_path):
    """The file's own report is what a failure shows."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(checks)]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
