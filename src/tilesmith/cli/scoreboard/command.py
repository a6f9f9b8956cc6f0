"""Runs a part of the scoreboard, goes on where the last one ended, and writes page and table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

import typer

from tilesmith.bench.case import load_suite
from tilesmith.bench.journal import Results, read_journal
from tilesmith.bench.plan import Job, Options
from tilesmith.bench.row import Row
from tilesmith.bench.run import Listener
from tilesmith.bench.scoreboard.board import make_board
from tilesmith.bench.scoreboard.page import make_page, markdown_text, terminal_lines
from tilesmith.bench.scoreboard.run import Part, begin_board, path_before, plan_board, run_part
from tilesmith.cli.output import tell
from tilesmith.diagnostics.wording import counted

TITLE = "Scoreboard"
Run = Callable[[Listener | None], Sequence[Row]]
Watch = Callable[[Options, Sequence[Job], Run], Sequence[Row]]


def run_scoreboard(
    options: Options, part_seconds: float, with_tuned: bool, watch: Watch
) -> Sequence[Row]:
    """The rows there are after this part; ``watch`` runs and tells of progress."""
    path = options.path or Path(f"scoreboard-{options.place}.jsonl")
    options = replace(options, path=path, resume=True)
    suite = load_suite(options.suite)
    jobs = plan_board(suite, options, with_tuned=with_tuned)
    options.check_device()
    begin_board(jobs, path)
    part = Part(part_seconds or inf)
    rows = watch(options, jobs, partial(run_part, jobs, options, part))
    tell(f"{len(rows)} of {counted(len(jobs), 'row')} are in {path} ({part.elapsed:.0f} s)")
    if len(rows) < len(jobs):
        tell("run it again to go on")
    run = read_journal(path).run if path.exists() else {}
    before = read_journal(path_before(path)) if path_before(path).exists() else None
    families = {operator.name: operator.family for operator in suite.operators}
    board = make_board(Results(rows, run), families, before)
    path.with_suffix(".html").write_text(make_page(board, TITLE), encoding="utf-8")
    path.with_suffix(".md").write_text(markdown_text(board, TITLE), encoding="utf-8")
    typer.echo("\n".join(terminal_lines(board)))
    return rows
