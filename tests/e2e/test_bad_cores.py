"""Cores that `flare` must refuse: an error that names the problem, an exit code of its own, never a crash."""

import hashlib
import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

FILE = "rank-0.safetensors"


class Core:
    """A core file's bytes apart from its storage, for tests that change them in place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            self.header = json.loads(file.read(length))
        self.data_start = 8 + length

    def tensor(self, name: str) -> bytes:
        start, end = self.header[name]["data_offsets"]
        with self.path.open("rb") as file:
            file.seek(self.data_start + start)
            return file.read(end - start)

    def digest(self) -> str:
        modules = [name for name in self.header if name.startswith("module.")]
        modules.sort(key=lambda name: int(name.removeprefix("module.")))
        digest = hashlib.sha256()
        for name in ("contract", *modules, "frontend.tokenizer", "frontend.template"):
            digest.update(self.tensor(name))
        return digest.hexdigest()

    def overwrite(self, offset: int, data: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def replace_in_contract(self, old: bytes, new: bytes) -> None:
        """Puts `new` in the place of the first `old`, of equal length, and makes the digest right again."""
        assert len(old) == len(new)
        start, _ = self.header["contract"]["data_offsets"]
        before = self.digest()
        assert self.header["__metadata__"]["digest"] == before
        self.overwrite(self.data_start + start + self.tensor("contract").index(old), new)
        with self.path.open("rb") as file:
            header = file.read(self.data_start)
        self.overwrite(header.index(before.encode()), self.digest().encode())


@pytest.fixture
def copy(core: Path, tmp_path: Path) -> Iterator[Core]:
    """A private copy of the shared core; removed after the test, for it is large."""
    directory = tmp_path / "core"
    directory.mkdir()
    shutil.copyfile(core / FILE, directory / FILE)
    yield Core(directory / FILE)
    shutil.rmtree(directory)


def test_no_core_at_all(refused, tmp_path: Path) -> None:
    assert "nothing-here" in refused(tmp_path / "nothing-here")
    (tmp_path / "empty").mkdir()
    assert FILE in refused(tmp_path / "empty")


@pytest.mark.parametrize("keep", [0, 7, 4096, 1 << 20], ids=lambda keep: f"{keep}-bytes")
def test_a_truncated_core(refused, core: Path, tmp_path: Path, keep: int) -> None:
    directory = tmp_path / "core"
    directory.mkdir()
    with (core / FILE).open("rb") as file:
        (directory / FILE).write_bytes(file.read(keep))
    refused(directory)


def test_a_core_that_lost_its_last_bytes(refused, copy: Core) -> None:
    with copy.path.open("r+b") as file:
        file.truncate(copy.path.stat().st_size - 4096)
    refused(copy.path.parent)


def test_a_corrupt_contract_does_not_match_its_digest(refused, copy: Core) -> None:
    start, end = copy.header["contract"]["data_offsets"]
    middle = copy.data_start + (start + end) // 2
    with copy.path.open("rb") as file:
        file.seek(middle)
        (byte,) = file.read(1)
    copy.overwrite(middle, bytes([byte ^ 0x55]))
    assert "digest" in refused(copy.path.parent)


def test_a_foreign_safetensors_file(refused, tmp_path: Path) -> None:
    header = json.dumps({"weight": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (tmp_path / FILE).write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    refused(tmp_path)


def test_a_file_that_is_not_safetensors(refused, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"\x7fELF" + bytes(range(256)) * 64)
    refused(tmp_path)


def test_a_core_of_another_cpu(refused, copy: Core) -> None:
    copy.replace_in_contract(b"avx2", b"avx9")
    assert "avx9" in refused(copy.path.parent)


def test_a_core_of_another_architecture(refused, copy: Core) -> None:
    copy.replace_in_contract(b"x86_64", b"vax_64")
    assert "vax_64" in refused(copy.path.parent)


def test_a_core_of_an_unknown_abi(refused, copy: Core) -> None:
    assert copy.tensor("contract")[:2] == b"\x08\x01"
    copy.replace_in_contract(b"\x08\x01", b"\x08\x63")
    said = refused(copy.path.parent)
    assert "abi" in said.lower()
    assert "99" in said


def test_a_port_that_is_taken(refused, core: Path, server) -> None:
    assert str(server.port) in refused(core, port=server.port)
