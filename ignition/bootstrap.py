"""From a checkpoint to a core: the order of a preparation, readable top to bottom in `prepare`.

Weights are loaded once, straight into the storage that programs will read; nothing is moved afterwards. A core appears
in its folder whole or not at all. No step here knows a model or computes one.
"""

import ctypes
import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from ignition.checkpoint import WeightMapping, load_weights, open_checkpoint
from ignition.devices.device import Device
from ignition.errors import UsageError
from ignition.export.writer import REPORT_NAME, export_core
from ignition.preparation.model import PreparationOptions
from ignition.preparation.session import Capacities, RecordedPreparationSession
from ignition.progress import Display, Phase
from ignition.recipes import find_recipe


def prepare(
    model: str, output: Path, *, device: Device, options: PreparationOptions, display: Display
) -> RecordedPreparationSession:
    """Prepare a checkpoint for a device into the folder `output`, with a report beside the core.

    The session that comes back still holds the captured programs and their memory. Raises `PreparationError`, which
    says what was wrong and what to do.
    """
    session = RecordedPreparationSession(options, device)

    @contextmanager
    def phase(title: str, *, total: int = 0) -> Iterator[Phase]:
        with display.phase(title, total=total) as shown, session.report.phase(title):
            yield shown

    with phase("validate"):
        check_output(output)
        checkpoint = open_checkpoint(model)
        recipe = find_recipe(checkpoint.config)
    with phase("fingerprint"):
        fingerprint = checkpoint.fingerprint()
    with phase("build the model"):
        prepared = recipe.build(checkpoint, fingerprint)
        ignored = recipe.ignored(checkpoint)
        # Options that contradict the model are refused before its weights are read.
        Capacities.of(options, prepared, device)
    with phase("build operators"):
        device.start()
    with phase("load weights", total=checkpoint.stored_bytes) as loading:
        mapping = WeightMapping(session.place(prepared), ignored)
        load_weights(checkpoint, mapping, advance=loading.advance)
        checkpoint.close()
        del checkpoint
        release_memory()
    with phase("declare"):
        session.declare()
    with phase("compile"):
        session.compile()
        release_memory()
    with phase("tune"):
        session.tune()
    with phase("capture"):
        session.capture()
    budget = device.resident_budget_bytes()
    session.report.note("ignored_tensors", dict(ignored))
    session.report.note("resident_budget_bytes", budget)
    with display.phase("export and verify"):
        export_core(session, output)
    if peak_resident_bytes() > budget:
        display.note(
            f"warning: preparing took {peak_resident_bytes() >> 20} MiB of memory, more than the {budget >> 20} MiB "
            f"that it should; {output / REPORT_NAME} says after which phase"
        )
    return session


def release_memory() -> None:
    """Give what a phase has left behind back to the system, so that the next one's peak does not lie on top of it."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def peak_resident_bytes() -> int:
    """The most memory that this process has held at one time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def choose_device(stated: str | None) -> Device:
    """The device to prepare for: the stated one, else CUDA where there is one, else the host.

    Raises `UsageError` where CUDA is stated and there is none.
    """
    present = torch.cuda.device_count() > 0  # Asks without initializing CUDA, which a recorder has to come before.
    if stated == "cuda" and not present:
        raise UsageError("torch sees no CUDA device on this machine; pass --device host")
    if stated != "host" and present:
        from ignition.devices.cuda.device import CudaDevice

        return CudaDevice()
    from ignition.devices.host.device import HostDevice

    return HostDevice()


def check_output(output: Path) -> None:
    """The folder can be made or written to. Said before minutes of work rather than after."""
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file; give a folder for the core")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {output}: {error.strerror}") from error
    if not os.access(output, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write into {output}")
