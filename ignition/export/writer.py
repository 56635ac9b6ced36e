"""Exports a captured session: write beside the final name, verify in a fresh process, rename.

Whatever fails on the way leaves a core that was there before as it was.
"""

import json
import os
import shutil
from pathlib import Path

from ignition.export.contract import ABI, build_contract
from ignition.export.corefile import BLOCK_BYTES, FILE_NAME, CoreParts, StoragePayload, storage_digest, write_core_file
from ignition.export.fixture import run_fixture
from ignition.export.verify import EXPECTED_NAME, expected_json, verify_in_fresh_process
from ignition.preparation.session import RecordedPreparationSession
from ignition.preparation.storage import Role

REPORT_NAME = "preparation.json"


def export_core(session: RecordedPreparationSession, folder: Path) -> None:
    """Write a session's core into a folder.

    Raises `VerificationError` when a fresh process computes other bits from the file, `PreparationError` when it cannot
    load it; the folder's former core is untouched then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".partial-{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        with session.report.phase("export"):
            write_core_file(partial / FILE_NAME, core_parts(session))
        with session.report.phase("verify"):
            write_text(partial / EXPECTED_NAME, captured_run(session))
            verify_in_fresh_process(partial)
        session.report.note("memory_bytes", memory_bytes(session))
        write_text(partial / REPORT_NAME, json.dumps(session.report.as_json(), indent=1) + "\n")
        # The core goes last: what is beside it then belongs to it.
        for name in (REPORT_NAME, EXPECTED_NAME, FILE_NAME):
            (partial / name).rename(folder / name)
        sync_folder(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def core_parts(session: RecordedPreparationSession) -> CoreParts:
    """The file's parts; storage is read from where the weights lie."""
    weights = session.storage.weights
    payload = StoragePayload(weights.size_bytes, lambda: weights.memory.blocks(weights.size_bytes, BLOCK_BYTES))
    storage = {weights.name: payload}
    encoded = session.device.encode(session.programs)
    contract = build_contract(session, encoded, storage_digest=storage_digest(storage))
    frontend = session.model.frontend
    return CoreParts(
        abi=ABI,
        contract=contract.SerializeToString(deterministic=True),
        modules=encoded.images,
        storage=storage,
        tokenizer=frontend.tokenizer,
        template=frontend.template.encode(),
    )


def captured_run(session: RecordedPreparationSession) -> str:
    """The fixture as the preparing process computes it, through Python."""
    session.clear_state()
    limits = session.driver_limits()
    steps = run_fixture(session.captured_machine(), limits)
    rows = session.state.rows.numel() // session.state.layout.row_stride
    return expected_json(steps, rows=rows, pages=limits.pages)


def memory_bytes(session: RecordedPreparationSession) -> dict[str, int]:
    """Bytes by role as a serving process will hold them; rows and pages by one, for memory decides their count."""
    regions = {region.role: region.size_bytes for region in session.storage.regions}
    return {
        "weights": regions[Role.WEIGHTS],
        "io": regions[Role.IO],
        "scratch": regions[Role.SCRATCH],
        "row": session.state.layout.row_stride,
        "page": session.state.layout.page_stride,
    }


def write_text(path: Path, content: str) -> None:
    """Write a small file and bring it to the disk."""
    with path.open("w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring renames to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
