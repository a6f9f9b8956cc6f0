"""Runs a part of the scoreboard, goes on where the last one ended, and writes page and table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

from tilesmith.bench.case import load_suite
from tilesmith.bench.journal import read_journal
from tilesmith.bench.plan import Job, Options
from tilesmith.bench.row import Row
from tilesmith.bench.run import Listener
from tilesmith.bench.scoreboard.board import Board, make_board
from tilesmith.bench.scoreboard.page import make_page, markdown_text
from tilesmith.bench.scoreboard.run import Part, begin_board, path_before, plan_board, run_part
from tilesmith.cli.output import tell
from tilesmith.cli.results import load_results
from tilesmith.diagnostics.wording import counted

TITLE = "Scoreboard"
Run = Callable[[Listener | None], Sequence[Row]]
Watch = Callable[[Options, Sequence[Job], Run], Sequence[Row]]


def board_jobs(options: Options, with_tuned: bool) -> tuple[Job, ...]:
    """What a whole board measures."""
    return plan_board(load_suite(options.suite), options, with_tuned=with_tuned)


def run_scoreboard(
    options: Options, part_seconds: float, with_tuned: bool, watch: Watch, load: Sequence[Path]
) -> Board:
    """That of the rows after this part, or in files; ``watch`` runs and tells of progress."""
    if load:
        return write_board(load, options)
    path = options.path or Path(f"scoreboard-{options.place}.jsonl")
    options = replace(options, path=path, resume=True)
    jobs = board_jobs(options, with_tuned)
    options.check_device()
    begin_board(jobs, path)
    part = Part(part_seconds or inf)
    rows = watch(options, jobs, partial(run_part, jobs, options, part))
    tell(f"{len(rows)} of {counted(len(jobs), 'row')} are in {path} ({part.elapsed:.0f} s)")
    if len(rows) < len(jobs):
        tell("run it again to go on")
    return write_board([path], options)


def write_board(paths: Sequence[Path], options: Options) -> Board:
    """Page and table of the rows of some files, beside the first."""
    results, path = load_results(*paths), paths[0]
    before = read_journal(path_before(path)) if path_before(path).exists() else None
    families = {one.name: one.family for one in load_suite(options.suite).operators}
    board = make_board(results, families, before)
    path.with_suffix(".html").write_text(make_page(board, TITLE), encoding="utf-8")
    path.with_suffix(".md").write_text(markdown_text(board, TITLE), encoding="utf-8")
    return board
