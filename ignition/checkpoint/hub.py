"""A checkpoint of the Hugging Face hub, brought to (or found in) the local cache.

Only named files are asked for.
"""

from pathlib import Path

import httpx
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

from ignition.errors import CheckpointError

FILES = [
    "config.json",
    "*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
]


def download(model: str) -> Path:
    """The local folder of a snapshot.

    `model` is `owner/name`. Raises `CheckpointError` when it cannot be had.
    """
    try:
        return Path(snapshot_download(model, allow_patterns=FILES))
    except HfHubHTTPError as error:
        raise CheckpointError(f"the Hugging Face hub refused {model}: {first_line(error)}") from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, httpx.HTTPError, OSError) as error:
        raise CheckpointError(
            f"cannot download {model} and no complete copy is in the local cache ({first_line(error)}). There is no "
            f"folder or file of that name either. Check the name and the network, or download the model elsewhere and "
            f"give its folder: ignition prepare ./{model.split('/')[1]} -o core/"
        ) from error


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its type where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
