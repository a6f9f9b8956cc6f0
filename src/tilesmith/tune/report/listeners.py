"""The reports that a search gets by its options: log, progress bar, tables, picture and page."""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilesmith.diagnostics.wording import counted, ms_text
from tilesmith.lab.line_file import with_suffix
from tilesmith.lab.pages import PictureError
from tilesmith.store.config_text import short_text
from tilesmith.store.outcome import Outcome
from tilesmith.store.search_log import LOGGER_NAME
from tilesmith.tune.listener import Generation, History, Listener, Progress, SearchStart
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.report.html import make_page
from tilesmith.tune.report.log import LogListener
from tilesmith.tune.report.picture import draw_predictions, draw_search
from tilesmith.tune.report.tables import TableListener
from tilesmith.tune.result import Final, TuneResult


def choose_listeners(options: TuneOptions) -> tuple[Listener, ...]:
    """Log, progress bar, tables, and the picture and page that are made at the end."""
    is_quiet = options.log_level > logging.INFO
    bar = make_progress(is_enabled=options.has_progress_bar and not is_quiet)
    # The bar is gone before the log says how it ended.
    found: list[Listener] = [] if bar is None else [bar]
    found.append(LogListener(options.log_level))
    if options.log_path is not None:
        found += [TableListener(options.log_path), ReportListener(options.log_path)]
    return tuple(found)


class ReportListener(History):
    """Remembers a search; writes ``<prefix>.html``, ``.png`` and ``.predicted.png``."""

    def __init__(self, prefix: Path) -> None:
        super().__init__()
        self.prefix = prefix

    def on_end(self, result: TuneResult) -> None:
        """Write the files."""
        super().on_end(result)
        if self.trials:
            write_report(self, self.prefix)


def write_report(history: History, prefix: Path) -> list[Path]:
    """Write what can be written; the paths of what was."""
    jobs: dict[str, Callable[[], bytes | None]] = {
        ".html": lambda: make_page(history).encode(),
        ".png": lambda: draw_search(history),
        ".predicted.png": lambda: draw_predictions(history),
    }
    written: list[Path] = []
    for suffix, make in jobs.items():
        path = with_suffix(prefix, suffix)
        try:
            content = make()
            if content is None:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            written.append(path)
        except (OSError, PictureError) as error:
            logging.getLogger(LOGGER_NAME).warning("%s is not written: %s", path, error)
    return written


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
        """Show the bar, and make sure that it goes with the process."""
        self._task = self._bar.add_task(
            f"tuning {start.kernel}", total=start.budget_s, status="starting"
        )
        self._bar.start()
        # A process that is made to end in the middle must not leave a terminal without cursor.
        atexit.register(self._bar.stop)

    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        """Move the bar and say what is best so far."""
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
