"""The selection cache: races that were run to their end, by everything that their outcome depends on.

One JSON file a namespace, which names the model, the device, the versions and the rules of the races. An entry is keyed
by its question and its candidates, so a changed operator asks anew. A file that cannot be read counts as empty.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ignition.kernels.candidates import Candidate, Query, Tunable

WORKLOAD_SCHEMA = 2
"""Raised when fixtures or the way of measuring change what a race would say."""


@dataclass(frozen=True)
class Selection:
    """A race's winner and its time."""

    candidate: Candidate
    us: float


class SelectionCache:
    """Selections of one namespace. Safe among processes: files are replaced whole, and merged under a lock."""

    def __init__(self, folder: Path, namespace: Mapping[str, str]) -> None:
        self._namespace = {"workload_schema": str(WORKLOAD_SCHEMA), **namespace}
        key = hashlib.sha256(json.dumps(self._namespace, sort_keys=True).encode()).hexdigest()
        self._path = folder / f"{key}.json"
        self._entries = self._read()

    def find(self, tunable: Tunable, query: Query) -> Selection | None:
        """A selection that an earlier race made among the same candidates."""
        entry = self._entries.get(entry_key(tunable, query))
        if entry is None:
            return None
        candidate = next((one for one in tunable.candidates(query) if dict(one) == entry["candidate"]), None)
        return None if candidate is None else Selection(candidate, float(entry["us"]))

    def add(self, selections: Mapping[Query, tuple[Tunable, Selection]]) -> None:
        """Keep selections, beside what other processes have kept meanwhile."""
        if not selections:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._entries = self._read() | {
                entry_key(tunable, query): {"candidate": dict(one.candidate), "us": one.us}
                for query, (tunable, one) in selections.items()
            }
            partial = self._path.with_suffix(f".{os.getpid()}")
            partial.write_text(json.dumps({"namespace": self._namespace, "entries": self._entries}, indent=1) + "\n")
            partial.replace(self._path)

    def _read(self) -> dict[str, Any]:
        try:
            document = json.loads(self._path.read_text())
            return dict(document["entries"]) if document["namespace"] == self._namespace else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def entry_key(tunable: Tunable, query: Query) -> str:
    """What a race is about: the operator's version, the question, and the candidates."""
    candidates = json.dumps([dict(one) for one in tunable.candidates(query)], sort_keys=True)
    offered = hashlib.sha256(candidates.encode()).hexdigest()[:16]
    return f"{query} version {tunable.version} of {offered}"
