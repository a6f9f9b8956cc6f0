"""``tilesmith bench``: runs suites of kernels against alternatives, prints and writes the results.

Standard output has the results alone; what happens meanwhile goes to standard error.
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text
from typing_extensions import override

from tilesmith.bench.case import load_suite
from tilesmith.bench.journal import JournalError, Results, read_journal
from tilesmith.bench.plan import Job, Options, PlanError, make_plan, paths
from tilesmith.bench.report.html import write_page
from tilesmith.bench.report.pictures import write_pictures
from tilesmith.bench.row import Owner, Row, Status
from tilesmith.bench.run import Listener, run_plan
from tilesmith.bench.scoreboard.page import terminal_lines
from tilesmith.bench.summary import print_summary, row_line
from tilesmith.bench.tables import choose_rows, csv_text, json_text
from tilesmith.cli.flags import make_command_adder, options_of
from tilesmith.cli.json_option.launch_costs import show_launch_costs
from tilesmith.cli.json_option.plan import show_plan
from tilesmith.cli.json_option.words import HELP, STDOUT
from tilesmith.cli.output import SideConsole, UsageError, is_shown, tell
from tilesmith.cli.results import load_results
from tilesmith.cli.scoreboard import Run, board_jobs, run_scoreboard
from tilesmith.diagnostics.wording import counted

OURS_FAILED, HARNESS_FAILED = 1, 3
"""Exit codes, beside 0; 2 is a mistake in the command line. Failures of others are none."""
SHOWN = ("metrics", "csv", "json", "html", "svg", "quiet")
CHOOSING = ("kernels", "shard", "num_inputs", "input_ids", "only", "dtype", "device")
USES = {"launch": ("device", "json"), "load": (*CHOOSING, *SHOWN, "scoreboard")}
"""What each way not to run anything looks at."""
WHY = {"launch": "it times calls of its own kernels", "load": "it shows rows as they were measured"}


@dataclass(frozen=True)
class BenchFlags(Options):
    """The options of ``tilesmith bench``."""

    load: Annotated[
        tuple[Path, ...],
        typer.Option("--from", help="run nothing: show a file's rows; may be repeated"),
        paths,
    ] = ()
    is_list: Annotated[bool, typer.Option("--list", help="only say what would run")] = False
    csv: Annotated[Path | None, typer.Option(help="write rows as CSV")] = None
    json: Annotated[Path | None, typer.Option(metavar="[FILE]", help=HELP)] = None
    html: Annotated[Path | None, typer.Option(help="write one page with pictures")] = None
    svg: Annotated[Path | None, typer.Option(help="folder to write the pictures to")] = None
    quiet: Annotated[bool, typer.Option("--quiet", help="print no rows and no summary")] = False
    launch: Annotated[bool, typer.Option("--launch", help="only time what a launch costs")] = False
    scoreboard: Annotated[bool, typer.Option("--scoreboard", help="all kernels and rivals")] = False
    part_seconds: Annotated[
        float, typer.Option(help="stop a scoreboard after this; run it again to go on", min=0.0)
    ] = 0.0

    def __post_init__(self) -> None:
        """What was asked for is checked by ``options``, once it is clear what that is."""

    def options(self) -> Options:
        """What runs and how; PlanError for what does not exist."""
        chosen = {item.name: getattr(self, item.name) for item in fields(Options)}
        if not (self.path or self.resume or self.is_list or self.load or self.scoreboard):
            chosen["path"] = Path(f"bench-{datetime.now():%Y%m%d-%H%M%S}.jsonl")
        return Options(**chosen)


def bench(flags: BenchFlags, context: typer.Context) -> int:
    """Run kernels against eager, torch.compile and others. Each has its own process."""
    try:
        _check_modes(context)
        options, with_tuned = flags.options(), "tune_budget_s" in _asked(context)
        if flags.launch:
            options.check_device()
            return show_launch_costs(options.place, flags.json)
        if flags.scoreboard and not flags.is_list:
            how = (flags.part_seconds, with_tuned, partial(_watch, flags), flags.load)
            board = run_scoreboard(options, *how)
            typer.echo("\n".join(terminal_lines(board)))
            return exit_code([row for line in board.lines for row in line.rows])
        if flags.load:
            results = load_results(*flags.load)
            results = replace(results, rows=choose_rows(results.rows, options))
        elif flags.is_list:
            jobs = board_jobs(options, with_tuned) if flags.scoreboard else _plan(options)
            return show_plan(jobs, flags.json)
        else:
            results = _run(flags, options)
    except PlanError as error:
        raise UsageError(str(error)) from None
    except JournalError as error:
        tell(f"error: {error}; --resume goes on with what is there")
        return HARNESS_FAILED
    return _report(flags, options, results)


def _report(flags: BenchFlags, options: Options, results: Results) -> int:
    """Print and write; files are written even if the reader of the results has gone."""
    summary = partial(print_summary, results.rows, options.metrics, Console())
    if flags.json == STDOUT:
        summary = partial(typer.echo, json_text(results.rows, results.run), nl=False)
    try:
        has_printed = flags.quiet or is_shown(summary)
    finally:
        _write(flags, results, options.path)
    return exit_code(results.rows) if has_printed else HARNESS_FAILED


def exit_code(rows: Sequence[Row]) -> int:
    """Whether ours failed anywhere, or else the harness."""
    if any(row.blame == "ours failed" for row in rows):
        return OURS_FAILED
    return HARNESS_FAILED if any(row.status is Status.HARNESS_FAILED for row in rows) else 0


def _plan(options: Options) -> Sequence[Job]:
    jobs = make_plan(load_suite(options.suite), options)
    if not jobs:
        raise UsageError("nothing to run: no input or implementation is left")
    return jobs


def _run(flags: BenchFlags, options: Options) -> Results:
    jobs = _plan(options)
    options.check_device()
    rows = _watch(flags, options, jobs, partial(run_plan, jobs, options))
    return Results(rows, read_journal(options.path).run if options.path is not None else {})


def _watch(flags: BenchFlags, options: Options, jobs: Sequence[Job], run: Run) -> Sequence[Row]:
    listener = None
    if not flags.quiet:
        tell(f"{counted(len(jobs), 'row')} to {options.path}")
        listener = ProgressLines(jobs, SideConsole())
    try:
        return run(listener)
    except KeyboardInterrupt:
        tell(f"what has run is in {options.path}; --resume goes on from there")
        raise
    finally:
        if listener is not None:
            listener.stop()


def _write(flags: BenchFlags, results: Results, rows_path: Path | None) -> None:
    rows, written = results.rows, list[Path]()
    try:
        for path, text in ((flags.csv, csv_text(rows)), (flags.json, json_text(rows, results.run))):
            if path not in (None, STDOUT):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                written.append(path)
        if flags.html is not None:
            write_page(results, flags.html)
            written.append(flags.html)
        if flags.svg is not None:
            written += write_pictures(results, flags.svg)
    except (OSError, ValueError, ArithmeticError) as error:
        again = f"; the rows are in {rows_path}, and --from makes reports of them"
        raise UsageError(
            f"a report cannot be written: {error}{again if rows_path else ''}"
        ) from None
    if written and not flags.quiet:
        tell(f"wrote {', '.join(map(str, written))}")


def _check_modes(context: typer.Context) -> None:
    """UsageError if something was asked for that would not be looked at."""
    asked, flags = _asked(context), options_of(context)
    for mode, used in USES.items():
        ignored = [flags[name] for name in asked if name not in (mode, *used)]
        if mode in asked and ignored:
            names = ", ".join(ignored)
            raise UsageError(f"{flags[mode]} does not go with {names}: {WHY[mode]}; leave it out")


def _asked(context: typer.Context) -> list[str]:
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]


class ProgressLines(Listener):
    """One line for each row, with its place among all; in a terminal a bar below them."""

    def __init__(self, jobs: Sequence[Job], console: Console) -> None:
        self._places = {job.key: place for place, job in enumerate(jobs, 1)}
        self._bar = Progress(
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=len(jobs))

    @override
    def started(self, job: Job) -> None:
        if not self._bar.live.is_started:
            self._bar.start()
            # A process that is made to end in the middle must not leave a terminal without cursor.
            atexit.register(self._bar.stop)
        what = f"{job.operator} {job.input_label} {job.implementation.name}"
        self._bar.update(self._task, completed=self._places[job.key] - 1, description=what)

    @override
    def finished(self, row: Row) -> None:
        place, total = self._places[row.key], len(self._places)
        line = f"[{place:>{len(str(total))}}/{total}] {row_line(row)}"
        self._bar.console.print(Text(line, style=style_of(row)), soft_wrap=True)
        self._bar.update(self._task, completed=place)

    def stop(self) -> None:
        """Leave the terminal as it was."""
        self._bar.stop()
        atexit.unregister(self._bar.stop)


def style_of(row: Row) -> str:
    """The colour of a row's line."""
    if not row.blame:
        return "" if row.status is Status.OK else "dim"
    return "bold red" if row.owner is Owner.OURS else "yellow"


add_to = make_command_adder(bench=bench)
