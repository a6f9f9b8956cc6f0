"""The table: one row for each fault, with what became of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

REAL, SIMULATED = "real", "simulated"


@dataclass(frozen=True)
class Row:
    """A fault, how often it was injected, what followed."""

    group: str
    fault: str
    outcome: str
    problems: tuple[str, ...] = ()
    """What should not have happened; empty: all is as promised."""
    runs: int = 1
    how: str = REAL
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether all is as promised."""
        return not self.problems


Group = Callable[[Path], Iterator[Row]]
"""Does its scenarios below a folder."""


def timed(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows with how long each took to come."""
    started = time.monotonic()
    for row in rows:
        now = time.monotonic()
        yield replace(row, seconds=round(now - started, 2))
        started = now


def as_markdown(rows: Sequence[Row], about: str) -> str:
    """The table, with totals by group above it."""
    lines = [f"# Faults and outcomes\n\n{about}\n", _totals(rows)]
    for group in dict.fromkeys(row.group for row in rows):
        own = [row for row in rows if row.group == group]
        lines.append(f"\n## {group}\n\n| fault | how | runs | outcome |\n|---|---|---:|---|")
        lines += [f"| {_plain(r.fault)} | {r.how} | {r.runs} | {_outcome(r)} |" for r in own]
    return "\n".join(lines) + "\n"


def _totals(rows: Sequence[Row]) -> str:
    lines = ["| group | faults | runs | not as promised |", "|---|---:|---:|---:|"]
    for group in [*dict.fromkeys(row.group for row in rows), "all"]:
        own = [row for row in rows if group in (row.group, "all")]
        bad = sum(not row.is_good for row in own)
        lines.append(f"| {group} | {len(own)} | {sum(row.runs for row in own)} | {bad} |")
    return "\n".join(lines)


def _outcome(row: Row) -> str:
    problems = "; ".join(row.problems)
    return _plain(row.outcome if row.is_good else f"**not as promised**: {problems}")


def _plain(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def as_json(rows: Sequence[Row], about: dict[str, Any]) -> str:
    """The same for programs."""
    return json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=1) + "\n"
