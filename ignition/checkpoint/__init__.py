"""Where a model's bytes come from: a folder of safetensors, a GGUF file, or a Hugging Face id.

Owns opening, naming, dequantizing, fingerprinting and the direct load into final storage. It never knows
which model it reads, never writes a file, and never holds a second copy of a tensor.
"""

from pathlib import Path

from ignition.checkpoint.checkpoint import Checkpoint, TensorInfo
from ignition.checkpoint.folder import FolderCheckpoint
from ignition.checkpoint.gguf import GgufCheckpoint
from ignition.checkpoint.hub import download
from ignition.checkpoint.loader import RowTarget, WeightMapping, load_weights
from ignition.errors import CheckpointError

__all__ = ["Checkpoint", "RowTarget", "TensorInfo", "WeightMapping", "load_weights", "open_checkpoint"]


def open_checkpoint(model: str) -> Checkpoint:
    """Open a checkpoint by what a person types: a folder, a `.gguf` file, or a Hugging Face id.

    Raises `CheckpointError` when there is none, or when it cannot be read as one.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return FolderCheckpoint(path)
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise CheckpointError(
                f"{model} is a file but not a .gguf; give the folder that holds config.json and the safetensors files"
            )
        return GgufCheckpoint(path)
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") != 1 or path.suffix.lower() == ".gguf":
        raise CheckpointError(
            f"no checkpoint at {model}: give a folder, a .gguf file, or a Hugging Face id (owner/name)"
        )
    return FolderCheckpoint(download(model), name=model.split("/")[1])
