"""Phases of a preparation, as a person sees them: bars on a terminal, plain lines elsewhere.

Everything goes to stderr; stdout is the command's result. Seconds of each phase are kept for the report.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

QUIET_SECONDS = 15.0
"""Without a terminal, a phase says how far it is at most this often."""


@dataclass
class Phase:
    """A running phase. `total` units of work, or 0 where it cannot be said."""

    title: str
    total: int = 0
    done: int = 0
    started: float = field(default_factory=time.monotonic)
    task: TaskID | None = None
    display: "Display | None" = None

    def advance(self, units: int = 1) -> None:
        """Some work is done."""
        self.done += units
        if self.display is not None:
            self.display.advanced(self)


class Display:
    """Shows phases on a stream and keeps their times."""

    def __init__(self, *, enabled: bool = True, console: Console | None = None) -> None:
        self.enabled = enabled
        self.console = console or Console(file=sys.stderr, highlight=False)
        self.seconds: dict[str, float] = {}
        self._bars: Progress | None = None
        self._said = 0.0

    @contextmanager
    def phase(self, title: str, *, total: int = 0) -> Iterator[Phase]:
        """Run a phase. A title is used once a preparation."""
        phase = Phase(title, total, display=self)
        try:
            self._begin(phase)
            yield phase
        finally:
            self.seconds[title] = time.monotonic() - phase.started
            self._end(phase)

    def note(self, text: str) -> None:
        """One line between phases."""
        if self.enabled:
            self.console.print(text, markup=False)

    def advanced(self, phase: Phase) -> None:
        """Redraw the phase's bar, or say now and then how far it is."""
        if self._bars is not None and phase.task is not None:
            self._bars.update(phase.task, completed=phase.done)
        elif self.enabled and phase.total and time.monotonic() - self._said > QUIET_SECONDS:
            self._said = time.monotonic()
            self.console.print(f"  {phase.title}: {100 * phase.done // phase.total} %", markup=False)

    def _begin(self, phase: Phase) -> None:
        self._said = phase.started
        if not self.enabled:
            return
        if not self.console.is_terminal:
            self.console.print(f"{phase.title} ...", markup=False)
            return
        columns = (TextColumn("{task.description:<28}"), BarColumn(), TimeElapsedColumn())
        self._bars = Progress(*columns, console=self.console, transient=True)
        self._bars.start()
        phase.task = self._bars.add_task(phase.title, total=phase.total or None)

    def _end(self, phase: Phase) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
        if self.enabled:
            self.console.print(f"{phase.title:<28} {self.seconds[phase.title]:8.1f} s", markup=False)
