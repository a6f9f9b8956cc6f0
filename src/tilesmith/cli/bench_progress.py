"""What is seen of a benchmark while it runs: lines, in a terminal with a bar below them.

All of it goes to standard error; standard output is for the results.
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from tilesmith.bench.plan import Job
from tilesmith.bench.row import Owner, Row, Status
from tilesmith.bench.run import Listener
from tilesmith.bench.summary import row_line


def make_listener(jobs: Sequence[Job], console: Console, *, is_quiet: bool) -> Listener | None:
    """A bar in a terminal, lines elsewhere, nothing if quiet."""
    if is_quiet:
        return None
    places = {job.key: place for place, job in enumerate(jobs, 1)}
    return BarListener(places, console) if console.is_terminal else LineListener(places, console)


class LineListener:
    """One line for each row, with its place among all."""

    def __init__(self, places: dict[tuple[str, int, str, str, str], int], console: Console) -> None:
        self._places, self._console = places, console

    def started(self, job: Job) -> None:
        """A line comes with the row, so there is nothing to say yet."""

    def finished(self, row: Row) -> None:
        """Print where the row stands among all, and what it says."""
        place, total = self._places[row.key], len(self._places)
        line = f"[{place:>{len(str(total))}}/{total}] {row_line(row)}"
        self._console.print(Text(line, style=style_of(row)), soft_wrap=True)

    def done(self, rows: Sequence[Row]) -> None:
        """Results follow in a table, so there is nothing to add."""


class BarListener(LineListener):
    """The same lines, and below them a bar with what is running."""

    def __init__(self, places: dict[tuple[str, int, str, str, str], int], console: Console) -> None:
        super().__init__(places, console)
        self._bar = Progress(
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=len(places))

    def started(self, job: Job) -> None:
        """Say what runs."""
        if not self._bar.live.is_started:
            self._bar.start()
            # A process that is made to end in the middle must not leave a terminal without cursor.
            atexit.register(self._bar.stop)
        what = f"{job.operator} {job.input_label} {job.implementation.name}"
        self._bar.update(self._task, completed=self._places[job.key] - 1, description=what)

    def finished(self, row: Row) -> None:
        """The line, and the bar moves on."""
        super().finished(row)
        self._bar.update(self._task, completed=self._places[row.key])

    def done(self, rows: Sequence[Row]) -> None:
        """Take the bar away."""
        self.stop()

    def stop(self) -> None:
        """Leave the terminal as it was."""
        self._bar.stop()
        atexit.unregister(self._bar.stop)


def style_of(row: Row) -> str:
    """The colour of a row's line."""
    if row.status is Status.OK:
        return ""
    if not row.blame:
        return "dim"
    return "bold red" if row.owner is Owner.OURS else "yellow"
