"""Replay verification: a fresh process runs the fixture from a core file and compares with the recorded digests.

`python -m ignition.export.verify CORE` is that process. It loads the core as a server does, through Helios, and imports
no torch. The expected digests are `verification.json` beside the core, so that any machine can verify a core again.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from flare_heliopause import Core, HeliopauseError
from numpy.typing import NDArray

from ignition.errors import PreparationError
from ignition.export import core_pb2
from ignition.export.corefile import CoreReader, storage_digest_of
from ignition.export.fixture import Step, first_difference, run_fixture
from ignition.preparation.driver import DriverLimits

EXPECTED_NAME = "verification.json"
TIMEOUT_S = 600


class VerificationError(PreparationError):
    """A core does not compute what preparation computed."""


class CoreMachine:
    """A loaded core as a fixture's machine."""

    def __init__(self, folder: Path, *, rows: int, pages: int) -> None:
        self._core = Core(folder, rows=rows, pages=pages)
        self._backed = {"rows": rows, "pages": pages}
        self._strides: dict[str, int] = {}

    def upload(self, source: str, values: NDArray[np.generic], *, offset_bytes: int = 0) -> None:
        """Copy values into a buffer."""
        self._core.upload(source.upper(), offset_bytes, np.ascontiguousarray(values).tobytes())

    def launch(self, program: str) -> None:
        """Run a program to its end."""
        self._core.launch(program)

    def read(self, source: str) -> bytes:
        """A buffer's bytes."""
        return self._core.read(source.upper())

    def region(self, name: str) -> bytes:
        """The backed bytes of a region."""
        return self._core.read_region(name, 0, self._backed[name] * self._strides[name])

    def set_strides(self, state: core_pb2.StateSchema) -> None:
        """Learn the sizes of a row and a page."""
        self._strides = {"rows": state.row_stride_bytes, "pages": state.page_stride_bytes}

    def close(self) -> None:
        """Unmap the core."""
        self._core.close()


def expected_json(steps: list[Step], *, rows: int, pages: int) -> str:
    """The document that `verify_core` compares with."""
    return json.dumps({"rows": rows, "pages": pages, "steps": [step.as_json() for step in steps]}, indent=1) + "\n"


def verify_core(folder: Path) -> int:
    """Check a core's storage and replay its fixture; the number of launches compared.

    Raises `VerificationError` that names the first launch and buffer that differ, `PreparationError` for a core that
    cannot be read or loaded.
    """
    with CoreReader(folder) as reader:
        contract = core_pb2.PreparedContract.FromString(reader.read("contract"))
        found = storage_digest_of(reader)
    expected, steps = read_expected(folder / EXPECTED_NAME)
    if found != contract.identity.storage_digest:
        raise VerificationError(f"the storage of {folder} has digest {found}, not the one that its contract states")
    try:
        machine = CoreMachine(folder, rows=expected["rows"], pages=expected["pages"])
    except HeliopauseError as error:
        raise PreparationError(f"{folder} cannot be loaded: {error}") from error
    machine.set_strides(contract.state)
    try:
        difference = first_difference(steps, run_fixture(machine, limits_of(contract, pages=expected["pages"])))
    finally:
        machine.close()
    if difference is not None:
        raise VerificationError(f"replaying {folder} differs from the captured run: {difference}")
    return len(steps)


def read_expected(path: Path) -> tuple[dict[str, int], list[Step]]:
    """The recorded run: the rows and pages that it had, and its steps. Raises `PreparationError`."""
    try:
        document = json.loads(path.read_text())
        return {name: document[name] for name in ("rows", "pages")}, [Step(**step) for step in document["steps"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PreparationError(
            f"{path} cannot be read ({error}); copy the core's whole folder or prepare it again"
        ) from error


def limits_of(contract: core_pb2.PreparedContract, *, pages: int) -> DriverLimits:
    """A driver's sizes, from a contract."""
    limits = contract.limits
    programs = contract.programs
    prefill = [one.tokens for one in programs if one.family == core_pb2.OPERATION_FAMILY_PREFILL]
    decode = [one.requests for one in programs if one.family == core_pb2.OPERATION_FAMILY_DECODE]
    return DriverLimits(
        slots=limits.requests_max,
        lanes=max(decode),
        vocabulary=limits.vocabulary,
        context_tokens_max=limits.context_tokens_max,
        page_tokens=contract.state.page_tokens,
        pages=pages,
        prefill_capacities=tuple(sorted(prefill)),
        decode_capacities=tuple(sorted(decode)),
        completion_fields=contract.completion.metadata_fields,
        token_capacity=contract.completion.token_capacity,
    )


def verify_in_fresh_process(folder: Path) -> None:
    """Run this module on a core. Raises `VerificationError` with what the process said."""
    command = [sys.executable, "-m", "ignition.export.verify", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        said = done.stderr.strip() or f"the process ended with status {done.returncode} and said nothing"
        raise VerificationError(f"replay verification failed: {said[-4000:]}")


def main() -> int:
    """The fresh process: 0 when every bit is equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("core", type=Path)
    try:
        verify_core(parser.parse_args().core)
    except PreparationError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
