"""A progress bar on the terminal: time used, configs per second, failures, the best so far."""

from __future__ import annotations

import atexit
import sys
from importlib.util import find_spec
from typing import Any

from tilesmith.diagnostics.wording import counted, ms_text
from tilesmith.store.config_text import short_text
from tilesmith.store.outcome import Outcome
from tilesmith.tune.listener import Generation, Listener, Progress, SearchStart
from tilesmith.tune.result import Final, TuneResult


def make_progress(*, is_enabled: bool = True) -> Listener | None:
    """The bar, if it is wanted, stderr is a terminal and rich is there."""
    if not is_enabled or not _is_terminal() or find_spec("rich") is None:
        return None
    return ProgressListener(make_bar())


def make_bar(console: Any = None) -> Any:
    """The bar itself: a ``rich.progress.Progress``."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as Bar

    return Bar(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.completed:.0f}/{task.total:.0f} s", markup=False),
        TextColumn("{task.fields[status]}", markup=False),
        console=console or Console(stderr=True),
        # What is logged meanwhile appears above the bar.
        redirect_stdout=False,
        redirect_stderr=True,
        transient=True,
    )


def status_text(progress: Progress, num_failed: int) -> str:
    """The words behind the bar."""
    rate = progress.num_tried / progress.elapsed_s if progress.elapsed_s > 0 else 0.0
    parts = [f"{counted(progress.num_tried, 'config')} ({rate:.1f}/s)", f"{num_failed} failed"]
    if progress.best is not None:
        parts.append(f"best {ms_text(progress.best.time_ms)} {short_text(progress.best.config)}")
    return ", ".join(parts)


class ProgressListener:
    """Keeps a bar up to date while a search runs."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task: Any = None
        self._num_failed = 0

    def on_start(self, start: SearchStart) -> None:
        """Show the bar."""
        self._task = self._bar.add_task(
            f"tuning {start.kernel}", total=start.budget_s, status="starting"
        )
        self._bar.start()
        # A process that is made to end in the middle must not leave a terminal without cursor.
        atexit.register(self._bar.stop)

    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        """Move it."""
        self._num_failed += not outcome.verdict.is_timed
        self._bar.update(
            self._task,
            completed=min(progress.elapsed_s, progress.budget_s),
            status=status_text(progress, self._num_failed),
        )

    def on_generation(self, generation: Generation) -> None:
        """Nothing: outcomes have said it."""

    def on_finals(self, final: Final) -> None:
        """Nothing: the end comes next."""

    def on_end(self, result: TuneResult) -> None:
        """Take the bar away."""
        self._bar.stop()
        atexit.unregister(self._bar.stop)


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False
