"""What an interrupted run left behind: which rows count, and whether they go with new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from tilesmith.bench.environment import software
from tilesmith.bench.journal import Journal, check_is_ordinary, read_journal
from tilesmith.bench.plan import Job, Options, PlanError
from tilesmith.bench.row import Row, Status

MUST_AGREE = ("suite", "regime", "use_graph", "backend", "tune_budget_s", "use_cache")
"""Options without which rows of two runs cannot stand in one table."""
SPEEDUP = "speedup"
Key = tuple[str, int, str, str, str]


def describe_run(options: Options) -> dict[str, Any]:
    """The first line of a file: when, with what, and how."""
    chosen = {name: value for name, value in asdict(options).items() if name != "path"}
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"started": started, "software": software(), "options": chosen}


def kept_rows(jobs: Sequence[Job], options: Options) -> dict[Key, Row]:
    """Rows of these jobs that need not be made again; PlanError where the file does not fit."""
    if options.path is None:
        return {}
    check_is_ordinary(options.path)
    if not options.path.exists() or not options.path.stat().st_size:
        return {}
    if not options.resume:
        raise PlanError(f"{options.path} exists; go on with it by --resume, or name another file")
    journal = read_journal(options.path)
    if not journal.run and not journal.rows:
        raise PlanError(f"{options.path} has no rows of a benchmark; name another file")
    _check_agreement(journal, options)
    # Suites change: a number may stand for another input now.
    labels = {job.key: job.input_label for job in jobs}
    mine = [row for row in journal.rows if labels.get(row.key) == row.input_label]
    return {row.key: row for row in mine if _is_done(row, options)}


def _is_done(row: Row, options: Options) -> bool:
    if options.retry_disturbed and (row.is_disturbed or row.is_speedup_disturbed):
        return False
    done = {Status.OK, Status.UNAVAILABLE} | (set() if options.retry_failed else {Status.FAILED})
    return row.status in done


def _check_agreement(journal: Journal, options: Options) -> None:
    before: dict[str, Any] = journal.run.get("options", {})
    now = {name: getattr(options, name) for name in MUST_AGREE}
    if SPEEDUP in options.metrics:
        # Without it the baseline is not timed, which does no harm to rows that have both.
        before = {**before, SPEEDUP: SPEEDUP in before.get("metrics", (SPEEDUP,))}
        now[SPEEDUP] = True
    before, now = {**before, **journal.run.get("software", {})}, {**now, **software()}
    for name, value in now.items():
        if before.get(name, value) != value:
            was = f"{name} was {before[name]!r} and is {value!r} now"
            raise PlanError(f"{options.path}: {was}; such rows do not belong in one file")
