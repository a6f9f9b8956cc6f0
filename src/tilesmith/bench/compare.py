"""Two runs of the same benchmarks: what got faster or slower beyond noise, what fails or no longer.

A time counts as changed if it moved by more than what both rows say of their own noise, and by
more than a threshold: two processes differ by more than what one of them sees. If the baseline,
timed in the same process, moved with it, the machine changed and not the implementation. Times
that other work on the machine disturbed are told apart and judged neither way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from statistics import median
from typing import Any

from tilesmith.bench.implementations import EAGER
from tilesmith.bench.journal import Results
from tilesmith.bench.row import (
    Average,
    Owner,
    Row,
    geomean,
    implementation_names,
    is_speedup_disturbed,
)
from tilesmith.bench.tables import noise_of, speedup_noise_of
from tilesmith.diagnostics.wording import counted

THRESHOLD = 0.03
"""Share by which medians of two processes may differ without a cause, on a quiet machine."""

Key = tuple[str, str, str, str, str]
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
LOAD, UNKNOWN = "load", "not said"
MIN_LOAD = 0.5
"""Loads nearer than that, or than a quarter of the cores, are alike."""
Differences = dict[str, tuple[str, str]]


class ChangeKind(str, Enum):
    """What happened to an implementation of an input between two runs."""

    FAILS_NOW = "fails now"
    SLOWER = "slower"
    FASTER = "faster"
    WORKS_NOW = "works now"
    MACHINE = "moved with the baseline"
    DISTURBED = "disturbed"
    SAME = "within noise"
    STILL_FAILS = "still fails"
    ADDED = "only in the second"
    REMOVED = "only in the first"


_UNCOMPARED = (ChangeKind.DISTURBED, ChangeKind.STILL_FAILS, ChangeKind.ADDED, ChangeKind.REMOVED)


@dataclass(frozen=True)
class Change:
    """One implementation of one input in both runs, or in one of them."""

    kind: ChangeKind
    before: Row | None
    after: Row | None
    ratio: float | None = None
    """New time over old."""
    relative_ratio: float | None = None
    """The same after division by that of the baseline."""
    noise: float | None = None
    """Share by which the ratio had to move."""
    relative_noise: float | None = None
    """The same for the one after division."""

    @property
    def row(self) -> Row:
        """The later of the two."""
        row = self.after or self.before
        assert row is not None
        return row

    @property
    def is_regression(self) -> bool:
        """Whether something of ours got worse."""
        bad = self.kind in (ChangeKind.SLOWER, ChangeKind.FAILS_NOW)
        return bad and self.row.owner is Owner.OURS


@dataclass(frozen=True)
class Comparison:
    """All changes, the gravest first."""

    changes: Sequence[Change]

    def of(self, *kinds: ChangeKind) -> list[Change]:
        """The changes of some kinds."""
        return [change for change in self.changes if change.kind in kinds]

    @property
    def is_empty(self) -> bool:
        """Whether nothing of ours was seen in both runs, undisturbed and not failing in both."""
        ours = (change for change in self.changes if change.row.owner is Owner.OURS)
        return all(change.kind in _UNCOMPARED for change in ours)

    @property
    def regressions(self) -> list[Change]:
        """What of ours got worse."""
        return [change for change in self.changes if change.is_regression]

    @property
    def ratios(self) -> dict[str, Average]:
        """Geometric mean of new over old time by implementation, of rows with both."""
        found: dict[str, Average] = {}
        for name in implementation_names([change.row for change in self.changes]):
            mine = [change for change in self.changes if change.row.implementation == name]
            timed = [(change.kind, change.ratio) for change in mine if change.ratio is not None]
            kept = [ratio for kind, ratio in timed if kind is not ChangeKind.DISTURBED]
            disturbed = len(timed) - len(kept)
            found[name] = Average(geomean(kept), len(kept), len(mine), disturbed)
        return found


def compare(
    before: Iterable[Row], after: Iterable[Row], threshold: float = THRESHOLD
) -> Comparison:
    """What changed from one run to another; of rows for the same thing the last one counts."""
    old, new = _by_key(before), _by_key(after)
    changes = [judge(old.get(key), new.get(key), threshold) for key in dict.fromkeys([*old, *new])]
    order = list(ChangeKind)
    return Comparison(sorted(changes, key=lambda change: (order.index(change.kind), _gain(change))))


def judge(before: Row | None, after: Row | None, threshold: float = THRESHOLD) -> Change:
    """What happened to one implementation of one input."""
    if before is None or after is None:
        return Change(ChangeKind.ADDED if before is None else ChangeKind.REMOVED, before, after)
    # A time of zero is none.
    if not before.latency_ms or not after.latency_ms:
        return Change(_kind_without_times(before, after), before, after)
    ratio = after.latency_ms / before.latency_ms
    change = Change(
        ChangeKind.DISTURBED,
        before,
        after,
        ratio,
        _relative_ratio(before, after, ratio),
        _noise(threshold, before, after, noise_of),
        _noise(threshold, before, after, speedup_noise_of),
    )
    is_disturbed = before.is_disturbed or after.is_disturbed
    return change if is_disturbed else replace(change, kind=_kind_of(change))


def _noise(
    threshold: float, before: Row, after: Row, noise_of_row: Callable[[Row], float | None]
) -> float:
    return max(threshold, (noise_of_row(before) or 0.0) + (noise_of_row(after) or 0.0))


def _kind_without_times(before: Row, after: Row) -> ChangeKind:
    if after.latency_ms:
        return ChangeKind.WORKS_NOW if before.blame else ChangeKind.ADDED
    if before.latency_ms:
        return ChangeKind.FAILS_NOW if after.blame else ChangeKind.REMOVED
    return ChangeKind.STILL_FAILS if before.blame or after.blame else ChangeKind.SAME


def _kind_of(change: Change) -> ChangeKind:
    assert change.ratio is not None
    moved = _direction(change.ratio, change.noise or 0.0)
    relative = change.relative_ratio
    if moved is ChangeKind.SAME or relative is None:
        return moved
    is_own = _direction(relative, change.relative_noise or 0.0) is moved
    return moved if is_own else ChangeKind.MACHINE


def _direction(ratio: float, noise: float) -> ChangeKind:
    """Symmetric: what is slower one way is faster the other way."""
    if ratio > 1 + noise:
        return ChangeKind.SLOWER
    return ChangeKind.FASTER if 1 / ratio > 1 + noise else ChangeKind.SAME


def _relative_ratio(before: Row, after: Row, ratio: float) -> float | None:
    """None where there is nothing to relate to: the baseline cannot tell anything of itself."""
    if before.implementation == EAGER or not before.baseline_ms or not after.baseline_ms:
        return None
    if is_speedup_disturbed(before) or is_speedup_disturbed(after):
        return None
    return ratio * before.baseline_ms / after.baseline_ms


def _gain(change: Change) -> float:
    """Sorts the largest changes to the front."""
    if change.ratio is None:
        return 0.0
    return -change.ratio if change.kind is ChangeKind.SLOWER else change.ratio


def _by_key(rows: Iterable[Row]) -> dict[Key, Row]:
    """By label rather than number of the input: suites grow."""
    return {
        (row.operator, row.input_label, row.implementation, row.dtype, row.device): row
        for row in rows
    }


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


def _load_difference(before: Sequence[Row], after: Sequence[Row]) -> Differences:
    loads = [_numbers(some, LOAD) for some in (before, after)]
    if not all(loads):
        return {}
    old, new = map(median, loads)
    cores = max(_numbers([*before, *after], "cores"), default=0.0)
    is_alike = abs(old - new) <= max(MIN_LOAD, cores / 4)
    return {} if is_alike else {"load": (f"{old:.1f}", f"{new:.1f}")}


def _numbers(rows: Iterable[Row], name: str) -> list[float]:
    found: list[float] = []
    for row in rows:
        with suppress(KeyError, ValueError):
            found.append(float(row.environment[name]))
    return found


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
        olds, news = ({row.timer for row in rows} for rows in zip(*timed))
        made["timer"] = (_text(list(olds)), _text(list(news)))
    if any(bool(old.fallback) != bool(new.fallback) for old, new in both):
        old, new = (sum(bool(row.fallback) for row in rows) for rows in zip(*both))
        made["fallbacks"] = (counted(old, "row"), counted(new, "row"))
    return made
