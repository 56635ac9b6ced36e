#!/usr/bin/env bash
# Builds and collects what gpu_qualify.sh needs on a machine without network or Rust, about 25 MB: the release binary,
# wheels for CPython 3.12, the benchmark's files, and the tokenizer of SmolLM2 for models of random weights.
#
#   gpu_qualify_pack.sh KIT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kit=$1 python=${PYTHON:-.venv/bin/python}
rm -rf "$kit"
mkdir -p "$kit/tree/benchmarks" "$kit/tokenizer"

cargo build --release --locked --package flare
cp "${CARGO_TARGET_DIR:-target}/release/flare" "$kit/flare"
strip -S "$kit/flare"
"$python" -m maturin build --quiet --release --strip --locked -m heliopause/Cargo.toml -o "$kit"
python3 -m pip wheel --quiet --no-deps -w "$kit" .
python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 --platform any -d "$kit" \
    protobuf rich markdown-it-py mdurl pygments gguf

git describe --always --dirty --abbrev=12 > "$kit/tree/commit"
cp benchmarks/gpu_qualify* benchmarks/common.py benchmarks/numerics.py "$kit/tree/benchmarks/"
cp -r --parents scripts/server.py scripts/smollm2.py tests/numerics "$kit/tree/"
PYTHONPATH=. "$python" - "$kit/tokenizer" <<'END'
"""Writes the tokenizer and its settings as a checkpoint folder states them."""

import json
import sys
from pathlib import Path

from ignition.checkpoint import open_checkpoint
from scripts.smollm2 import weights

folder = Path(sys.argv[1])
frontend = open_checkpoint(str(weights())).frontend
(folder / "tokenizer.json").write_bytes(frontend.tokenizer)
settings = {"bos_token": frontend.bos_text, "eos_token": frontend.eos_text, "chat_template": frontend.template}
(folder / "tokenizer_config.json").write_text(json.dumps(settings))
END
du -sh "$kit"
