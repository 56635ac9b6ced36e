"""CUDA tests run where a device is present; elsewhere each of their modules is skipped and says so.

The recorder starts before anything initializes CUDA in the process, since it misses modules that were loaded before.
"""

import pytest
import torch
from flare_heliopause import ModuleRecorder

RECORDER = ModuleRecorder()
# Counts devices without making a context.
if torch.cuda.device_count() > 0:
    RECORDER.start()


@pytest.fixture(scope="session")
def recorder() -> ModuleRecorder:
    """The process's recorder."""
    return RECORDER
