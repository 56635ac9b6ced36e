"""Cores loaded and run from Python, through Helios' own loader and executor."""

import struct
import threading
from pathlib import Path

import pytest
from flare_heliopause import Arena, Core, HeliopauseError

from tests.heliopause.tiny_core import BASE, BUFFERS, WEIGHTS, messages, write_core


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("core")
    write_core(folder, messages(tmp_path_factory.mktemp("messages")))
    return folder


@pytest.fixture
def core(folder):
    core = Core(folder)
    yield core
    core.close()


def words(data: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(data) // 8}q", data))


def test_a_core_describes_itself(core):
    assert core.programs()[:2] == ["prefill.64", "decode.1"]
    assert core.buffers() == [(source, kind.lower(), shape) for source, kind, shape in BUFFERS]
    assert core.regions()[0] == ("weights", BASE, 4096)
    assert (core.rows, core.pages) == (3, 2)


def test_programs_compute_on_uploads(core):
    tokens = struct.pack("<64q", *range(64))
    core.upload("PREFILL_TOKENS", 0, tokens)
    core.upload(6, 8, memoryview(bytearray(struct.pack("<q", 100))))
    core.launch("prefill.64")
    assert words(core.read("COMPLETION"))[:4] == [0, 200, 4, 6]
    assert words(core.read("COMPLETION", 8, 16)) == [200, 4]
    core.launch(core.programs().index("initialize"))
    assert words(core.read("COMPLETION"))[0] == 2 * struct.unpack_from("<q", WEIGHTS)[0]


def test_masks_may_come_once_a_program_has_begun(core):
    core.upload("PREFILL_TOKENS", 0, struct.pack("<16q", *range(1, 17)))
    for mask in (21, 7):
        assert core.launch_early("decode.1", struct.pack("<I", mask))
        assert words(core.read("COMPLETION"))[:3] == [2 * mask, 4, 6]
    with pytest.raises(HeliopauseError, match="leave buffer"):
        core.launch_early("decode.1", bytes(8))
    core.launch("decode.1")
    assert words(core.read("COMPLETION"))[0] == 14


def test_rows_and_pages_can_be_set_and_seen(core):
    row = struct.pack("<512q", *range(512))
    core.write_region("rows", 0, row)
    core.launch("snapshot")
    assert words(core.read_region("pages", 0, 4096)) == [2 * i for i in range(512)]
    assert core.read_region("weights", 4000, 96) == WEIGHTS[4000:]


def test_many_uploads_need_no_launch_between(core):
    for value in range(1000):
        core.upload("LANE_SLOTS", 0, struct.pack("<q", value))
    assert words(core.read("LANE_SLOTS")) == [999]


def test_mistakes_are_named(core):
    for wrong, message in [
        (lambda: core.launch("decode.9"), r"no program `decode.9`; it has prefill.64, decode.1"),
        (lambda: core.launch(7), "no program 7"),
        (lambda: core.upload("LOGITS", 0, b""), "no buffer `LOGITS`"),
        (lambda: core.upload("FRAME", 4, bytes(8)), r"bytes 4..12 leave buffer 0 of 8 bytes"),
        (lambda: core.read("FRAME", 0, 9), "9 bytes were asked for, and there are 8"),
        (lambda: core.write_region("weights", 0, b"x"), "leave the memory that may be accessed"),
        (lambda: core.read_region("rows", 3 * 4096, 1), "leave the memory that may be accessed"),
    ]:
        with pytest.raises(HeliopauseError, match=message):
            wrong()


def test_addresses_are_given_back(folder):
    for _ in range(2):
        core = Core(folder, rows=2, pages=1)
        with pytest.raises(HeliopauseError, match="in use in this process"):
            Core(folder)
        core.close()
        core.close()
        with pytest.raises(HeliopauseError, match="closed"):
            core.launch("decode.1")
    arena = Arena(BASE, 4096)
    with pytest.raises(HeliopauseError, match="in use in this process"):
        Core(folder)
    arena.close()


def test_counts_that_no_program_could_run_with_are_refused(folder):
    with pytest.raises(HeliopauseError, match="2 rows and one page at least"):
        Core(folder, rows=1)
    with pytest.raises(HeliopauseError, match="2 rows and one page at least"):
        Core(folder, pages=0)
    with pytest.raises(HeliopauseError, match="leave the memory"):
        Core(folder, pages=1 << 20)


def test_a_core_that_is_none_is_refused(tmp_path):
    with pytest.raises(HeliopauseError, match="rank-0.safetensors"):
        Core(tmp_path)


def test_threads_share_a_core(core):
    def run() -> None:
        for _ in range(50):
            core.launch("decode.1")

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
