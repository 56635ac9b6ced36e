"""The command line: one clear line and the right exit code for bad input, and what `inspect` prints of a core."""

import json

import pytest
from safetensors.numpy import save_file

from ignition.cli import main
from ignition.export.corefile import FILE_NAME
from tests.recipes.tiny_checkpoints import canonical_model, save_checkpoint


def refused(capsys, *arguments, code=2):
    """Run a command that must fail with `code`; its one line on stderr."""
    assert main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if line.startswith("ignition: ")]
    assert len(lines) == 1
    assert "Traceback" not in captured.err
    assert captured.out == ""
    return lines[0]


@pytest.fixture
def checkpoint(tmp_path):
    return save_checkpoint(canonical_model("llama"), tmp_path / "model")


def test_models_that_cannot_be_prepared(capsys, tmp_path, checkpoint):
    output = ("-o", tmp_path / "core", "--device", "host")
    capsys.readouterr()
    assert "no checkpoint at ./nowhere" in refused(capsys, "prepare", "./nowhere", *output)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF\x03\x00")
    assert "broken.gguf" in refused(capsys, "prepare", tmp_path / "broken.gguf", *output)
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**config, "architectures": ["MambaForCausalLM"]}))
    assert "MambaForCausalLM" in refused(capsys, "prepare", checkpoint, *output)
    assert not (tmp_path / "core" / FILE_NAME).exists()


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--prefill-chunk-size", "100", "multiple of 64"),
        ("--max-concurrency", "0", "--max-concurrency"),
        ("--context", "100000", "--context"),
        ("--device", "cuda", "--device host"),
    ],
)
def test_options_that_cannot_be_met(capsys, tmp_path, checkpoint, option, value, said):
    capsys.readouterr()
    arguments = ["prepare", checkpoint, "-o", tmp_path / "core", "--device", "host", option, value]
    assert said in refused(capsys, *arguments)


def test_an_output_that_is_a_file_is_left_alone(capsys, tmp_path):
    (tmp_path / "core").write_text("mine")
    assert "is a file" in refused(capsys, "prepare", "model", "-o", tmp_path / "core", "--device", "host")
    assert (tmp_path / "core").read_text() == "mine"


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_what_is_not_a_core(capsys, tmp_path, command):
    assert FILE_NAME in refused(capsys, command, tmp_path, code=1)
    (tmp_path / FILE_NAME).write_bytes(b"\x00" * 100)
    assert FILE_NAME in refused(capsys, command, tmp_path, code=1)
    save_file({}, tmp_path / FILE_NAME)
    assert FILE_NAME in refused(capsys, command, tmp_path, code=1)


def test_inspect_prints_what_is_inside(capsys, core):
    assert main(["inspect", str(core)]) == 0
    printed = capsys.readouterr().out
    for expected in (
        "SmolLM2-135M-Instruct",
        "8192 tokens a request, 4 requests",
        "decode capacities [1, 2, 4], prefill capacities [16, 32, 64, 128, 256, 512]",
        "prefill.512",
        "temperature          0.2",
        "end tokens   [2]  '<|im_end|>', begin '<|im_start|>'",
    ):
        assert expected in printed


def test_verify_replays_a_core(capsys, core):
    assert main(["verify", str(core)]) == 0
    assert "is sound" in capsys.readouterr().out
