"""Exported cores: the file's layout, verification in a fresh process, and that a failed export changes nothing."""

import importlib.resources
import json
import shutil
from pathlib import Path

import pytest
from grpc_tools import protoc
from safetensors import safe_open

from ignition.export import core_pb2, writer
from ignition.export.corefile import ALIGNMENT, FILE_NAME, CoreReader
from ignition.export.verify import EXPECTED_NAME, VerificationError, verify_core, verify_in_fresh_process
from ignition.export.writer import REPORT_NAME, export_core

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def exported(captured, tmp_path_factory):
    folder = tmp_path_factory.mktemp("core")
    export_core(captured, folder)
    return folder


def copied(folder, target):
    """A copy of a core to damage."""
    shutil.copytree(folder, target)
    return target


def test_the_generated_contract_is_that_of_core_proto(tmp_path):
    include = importlib.resources.files("grpc_tools") / "_proto"
    arguments = ["protoc", f"-I{ROOT / 'helios/proto'}", f"-I{include}", f"--python_out={tmp_path}"]
    assert protoc.main([*arguments, f"--pyi_out={tmp_path}", "core.proto"]) == 0
    for name in ("core_pb2.py", "core_pb2.pyi"):
        assert (tmp_path / name).read_text() == (ROOT / "ignition/export" / name).read_text(), (
            f"{name} is stale: see the docstring of ignition/export"
        )


def test_a_core_is_three_files_and_nothing_else(exported):
    assert {path.name for path in exported.iterdir()} == {FILE_NAME, EXPECTED_NAME, REPORT_NAME}


def test_any_safetensors_reader_opens_a_core_with_its_storage_page_aligned(exported):
    with safe_open(exported / FILE_NAME, "np") as file:
        assert file.metadata()["format"] == "flare-core"
        assert set(file.keys()) == {
            *("contract", "module.0", "storage.weights", "frontend.tokenizer", "frontend.template")
        }
    header_bytes = int.from_bytes((exported / FILE_NAME).open("rb").read(8), "little")
    assert (8 + header_bytes) % ALIGNMENT == 0


def test_no_path_of_the_preparing_machine_is_in_a_core(exported):
    content = (exported / FILE_NAME).read_bytes()
    for path in (str(ROOT), str(Path.home() / ".cache")):
        assert path.encode() not in content


def test_the_contract_counts_what_was_captured(exported, captured):
    with CoreReader(exported) as reader:
        contract = core_pb2.PreparedContract.FromString(reader.read("contract"))
    assert [program.name for program in contract.programs] == [one.plan.name for one in captured.programs]
    assert [len(one.nodes) for one in contract.programs] == [len(one.nodes) for one in captured.programs]
    assert contract.limits.requests_max == 4
    assert list(contract.identity.host.isa) == sorted(contract.identity.host.isa)


def test_the_report_says_times_memory_nodes_and_selections(exported):
    report = json.loads((exported / REPORT_NAME).read_text())
    assert {"export", "verify"} <= set(report["phases_s"])
    assert {"weights", "io", "scratch", "row", "page"} == set(report["memory_bytes"])
    assert report["program_nodes"]["reset"] == 1
    assert report["selected_plans"]["kernels"]


def test_flipped_weights_are_found(exported, tmp_path):
    folder = copied(exported, tmp_path / "core")
    with (folder / FILE_NAME).open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        file.seek(8 + length + 5000)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(VerificationError, match="storage .* digest"):
        verify_core(folder)


def test_a_replay_that_differs_names_the_launch_and_the_buffer(exported, tmp_path):
    folder = copied(exported, tmp_path / "core")
    expected = json.loads((folder / EXPECTED_NAME).read_text())
    step = next(step for step in expected["steps"] if step["program"] == "decode.2")
    step["digests"]["logits"] = "0" * 64
    (folder / EXPECTED_NAME).write_text(json.dumps(expected))
    with pytest.raises(VerificationError, match=r"decode\.2, left other bits in logits"):
        verify_in_fresh_process(folder)


def test_a_failed_export_leaves_the_former_core_as_it_was(exported, captured, tmp_path, monkeypatch):
    folder = copied(exported, tmp_path / "core")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(writer, "captured_run", lambda session: json.dumps({"rows": 9, "pages": 18, "steps": []}))
    with pytest.raises(VerificationError, match="launches ran and not 0"):
        export_core(captured, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
