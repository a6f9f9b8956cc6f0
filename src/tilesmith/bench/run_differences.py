"""What two runs differ in besides their times: versions, device, load, how they were measured.

Each difference is a name with both values. What only one of two files says at all, as it was
written by an older version, is a difference too; what neither of them says is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from statistics import median
from typing import Any

from tilesmith.bench.compare import Comparison
from tilesmith.bench.report.html import Results
from tilesmith.bench.row import Row
from tilesmith.diagnostics.wording import counted

OPTIONS = {
    "suite": "suite",
    "regime": "regime",
    "use_graph": "CUDA graphs",
    "backend": "backend",
    "tune_budget_s": "seconds of a search",
    "use_cache": "use of the cache",
    "use_fresh_processes": "fresh processes",
}
"""Options that times depend on, in words."""
LOAD = "load"
UNKNOWN = "not said"
MIN_LOAD = 0.5
"""Loads nearer than that, or than a quarter of the cores, are alike."""

Differences = dict[str, tuple[str, str]]


def run_differences(before: Results, after: Results, found: Comparison) -> Differences:
    """Both values by name, in the order of what they say most about; empty if all is alike."""
    pairs = {
        name: (_text(old), _text(new))
        for name, (old, new) in _pairs(_environment(before), _environment(after)).items()
    }
    pairs |= _load_difference(before.rows, after.rows)
    pairs |= _pairs(_options(before.run), _options(after.run))
    pairs |= _row_differences(found)
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def differences_text(found: Mapping[str, tuple[str, str]]) -> str:
    """One line that names them.

    Example:
        >>> differences_text({"torch": ("2.9", "2.10")})
        'the runs differ in torch (2.9, then 2.10): times may have changed due to that'
    """
    parts = [f"{name} ({old}, then {new})" for name, (old, new) in found.items()]
    return f"the runs differ in {', '.join(parts)}: times may have changed due to that"


def _pairs(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Values of all names; of a run that says nothing at all, nothing is known to differ."""
    names = dict.fromkeys([*before, *after]) if before and after else {}
    return {name: (before.get(name, UNKNOWN), after.get(name, UNKNOWN)) for name in names}


def _environment(results: Results) -> dict[str, list[str]]:
    """All that rows say of where they ran; those of one file may have run on several machines."""
    software: Mapping[str, Any] = results.run.get("software", {})
    found = {name: [str(value)] for name, value in software.items()}
    for row in results.rows:
        for name, value in row.environment.items():
            known = found.setdefault(name, [])
            known += [value] if value not in known else []
    found.pop(LOAD, None)
    return found


def _text(values: list[str] | str) -> str:
    return values if isinstance(values, str) else " and ".join(sorted(values))


def _load_difference(before: Iterable[Row], after: Iterable[Row]) -> Differences:
    rows = (list(before), list(after))
    loads = [list(_numbers(some, LOAD)) for some in rows]
    if not all(loads):
        return {}
    old, new = map(median, loads)
    cores = max(_numbers([*rows[0], *rows[1]], "cores"), default=0.0)
    is_alike = abs(old - new) <= max(MIN_LOAD, cores / 4)
    return {} if is_alike else {"load": (f"{old:.1f}", f"{new:.1f}")}


def _numbers(rows: Iterable[Row], name: str) -> Iterable[float]:
    for row in rows:
        with suppress(KeyError, ValueError):
            yield float(row.environment[name])


def _options(run: Mapping[str, Any]) -> dict[str, str]:
    chosen: Mapping[str, Any] = run.get("options", {})
    return {
        words: str(chosen[name]) or "default" for name, words in OPTIONS.items() if name in chosen
    }


def _row_differences(found: Comparison) -> Differences:
    """How rows that are in both runs were timed, and whether with their first choice."""
    both = [
        (change.before, change.after)
        for change in found.changes
        if change.before is not None and change.after is not None
    ]
    timed = [(old, new) for old, new in both if old.timer and new.timer and old.timer != new.timer]
    made: Differences = {}
    if timed:
        made["timer"] = (_timers(old for old, _ in timed), _timers(new for _, new in timed))
    if any(bool(old.fallback) != bool(new.fallback) for old, new in both):
        made["fallbacks"] = (_fallbacks(old for old, _ in both), _fallbacks(new for _, new in both))
    return made


def _timers(rows: Iterable[Row]) -> str:
    return _text(list({row.timer for row in rows}))


def _fallbacks(rows: Iterable[Row]) -> str:
    return counted(sum(bool(row.fallback) for row in rows), "row")
