"""Where preparations leave what the next ones need not do again. Everything there may be deleted at any time."""

import os
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """The folder of one kind of thing, below the user's cache folder."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "flare" / kind
