"""The preparation report: what was measured, selected and used, as one JSON document beside the core."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class ReportBuilder:
    """Collects while preparation runs."""

    def __init__(self) -> None:
        self._phases_s: dict[str, float] = {}
        self._peaks_bytes: dict[str, int] = {}
        self._sections: dict[str, Any] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a step; a step that runs again adds up."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._phases_s[name] = self._phases_s.get(name, 0.0) + time.monotonic() - start
            self._peaks_bytes[name] = peak_resident_bytes()

    def note(self, section: str, content: Any) -> None:
        """Set a section."""
        self._sections[section] = content

    def as_json(self) -> dict[str, Any]:
        """The report, with the peak resident size at the end of each phase."""
        phases = {name: round(seconds, 3) for name, seconds in self._phases_s.items()}
        return {"phases_s": phases, "peak_resident_bytes": self._peaks_bytes, **self._sections}


def peak_resident_bytes() -> int:
    """The most memory that this process has held so far, mapped libraries included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
