"""A finished run as a scoreboard: a line for each input, ours against the best of all rivals.

Ours is the fastest of our kernels with its default config, a rival the fastest of all others that
gave a right result. Both are timed in turns with the eager form, so the ratio of their speedups is
that of their times, and its noise at most the sum of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilesmith.bench.compare import Change, ChangeKind, compare
from tilesmith.bench.journal import Results
from tilesmith.bench.row import Cause, Owner, Row, Status, geomean, is_speedup_disturbed
from tilesmith.bench.scoreboard.run import is_held_out
from tilesmith.bench.tables import speedup_noise_of
from tilesmith.measure.rank_correlation import rank_correlation

TUNED, LEAST_NOISE = "_tuned", 0.01
FEWEST_RANKED = 4
"""With fewer times an order says little."""
Families = Mapping[str, str]


@dataclass(frozen=True)
class Line:
    """One input of one operator."""

    rows: Sequence[Row]

    @property
    def first(self) -> Row:
        """Any row: all have the same operator and input."""
        return self.rows[0]

    @property
    def is_held_out(self) -> bool:
        """Whether defaults were never fitted to this input."""
        return is_held_out(self.first.input_id)

    @cached_property
    def ours(self) -> Row | None:
        """The fastest of our kernels by default."""
        return _fastest(row for row in self._ours if not row.implementation.endswith(TUNED))

    @cached_property
    def tuned(self) -> Row | None:
        """The fastest of our kernels after a search."""
        return _fastest(row for row in self._ours if row.implementation.endswith(TUNED))

    @cached_property
    def rival(self) -> Row | None:
        """The fastest of the others."""
        return _fastest(row for row in self.rows if row.owner is not Owner.OURS)

    @property
    def ratio(self) -> float | None:
        """The rival's time over ours: below one we are behind."""
        return _ratio(self.ours, self.rival)

    @property
    def tuned_ratio(self) -> float | None:
        """The same after a search."""
        return _ratio(self.tuned, self.rival)

    @property
    def noise(self) -> float:
        """How far off the ratio may be, as a share; two programs are never known better than 1%."""
        sides = [row for row in (self.ours, self.rival) if row is not None]
        return max(LEAST_NOISE, sum(speedup_noise_of(row) or 0.0 for row in sides))

    @property
    def is_behind(self) -> bool:
        """Whether the rival is faster beyond noise."""
        is_known = self.ratio is not None and not self.is_disturbed
        return is_known and (self.ratio or 0.0) * (1 + self.noise) < 1

    @property
    def is_disturbed(self) -> bool:
        """Whether others had the cores while one side was timed: such ratios are only shown."""
        return any(is_speedup_disturbed(row) for row in (self.ours, self.rival) if row is not None)

    @property
    def roofline_share(self) -> float | None:
        """Of the time that the model's roofline leaves, how much is used."""
        ours = self.ours
        if ours is None or not ours.roofline_ms or not ours.latency_ms:
            return None
        return ours.roofline_ms / ours.latency_ms

    @property
    def is_refused_on_both_sides(self) -> bool:
        """Whether the judge calls every result wrong, which is then likely to be the judge."""
        tried = [row for row in self.rows if row.status is not Status.UNAVAILABLE]
        sides = {row.owner for row in tried if row.cause is Cause.WRONG_RESULT}
        return len(sides) == 2 and all(row.cause is Cause.WRONG_RESULT for row in tried)

    @property
    def problem(self) -> str:
        """Why there is no ratio; nothing where there is one."""
        if self.ratio is not None:
            return ""
        side, rows = ("ours", self._ours) if self.ours is None else ("rivals", self.rows)
        reasons = [f"{row.implementation}: {row.reason}" for row in rows if row.reason]
        return reasons[0] if reasons else f"no time of {side}"

    @property
    def _ours(self) -> list[Row]:
        return [row for row in self.rows if row.owner is Owner.OURS]


@dataclass(frozen=True)
class Board:
    """All lines, those without a ratio first and then the farthest behind."""

    lines: Sequence[Line]
    environment: Mapping[str, str]
    changes: Mapping[tuple[str, str, str], Change]
    families: Families

    def ratios(self, choose: Callable[[Line], bool]) -> list[float]:
        """Of lines that are meant."""
        found = [line.ratio for line in self.lines if choose(line) and not line.is_disturbed]
        return [ratio for ratio in found if ratio is not None]

    @property
    def halves(self) -> dict[str, tuple[float | None, int]]:
        """Geometric means and counts over all inputs, fitted ones, held-out ones."""
        chosen: dict[str, Callable[[Line], bool]] = {
            "all inputs": lambda line: True,
            "fitted": lambda line: not line.is_held_out,
            "held out": lambda line: line.is_held_out,
        }
        found = {name: self.ratios(choose) for name, choose in chosen.items()}
        return {name: (geomean(ratios), len(ratios)) for name, ratios in found.items()}

    @property
    def behind(self) -> list[Line]:
        """Lines whose rival is faster beyond noise."""
        return [line for line in self.lines if line.is_behind]

    @property
    def search_gain(self) -> tuple[float | None, int]:
        """By how much searches beat defaults: geometric mean of the times, and of how many."""
        found = [_ratio(line.tuned, line.ours) for line in self.lines if not line.is_disturbed]
        gains = [gain for gain in found if gain is not None]
        return geomean(gains), len(gains)

    @property
    def correlations(self) -> dict[str, float]:
        """By family, whether predicted and measured times of our defaults have one order."""
        pairs: dict[str, list[tuple[float, float]]] = {}
        for line in self.lines:
            row = line.ours
            if row is not None and row.predicted_ms and row.latency_ms:
                family = self.families.get(row.operator, "")
                pairs.setdefault(family, []).append((row.predicted_ms, row.latency_ms))
        enough = {name: found for name, found in pairs.items() if len(found) >= FEWEST_RANKED}
        return {name: rank_correlation(*zip(*found)) for name, found in enough.items()}

    def change_of(self, line: Line) -> Change | None:
        """What happened to our row since the run before."""
        row = line.ours
        return None if row is None else self.changes.get(_place(row))


def make_board(results: Results, families: Families, before: Results | None = None) -> Board:
    """The board of a run, with what changed since another."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in results.rows:
        groups.setdefault((row.operator, row.input_label, row.dtype), []).append(row)
    lines = sorted(map(Line, groups.values()), key=lambda line: line.ratio or 0.0)
    found = compare(before.rows, results.rows).changes if before is not None else ()
    changes = {_place(change.row): change for change in found}
    return Board(lines, results.environment, changes, families)


def change_text(change: Change | None) -> str:
    """In a few words; nothing where a row is as it was.

    Example:
        >>> change_text(None)
        ''
    """
    if change is None or change.kind in (ChangeKind.SAME, ChangeKind.STILL_FAILS):
        return ""
    if change.ratio is None or change.kind in (ChangeKind.DISTURBED, ChangeKind.MACHINE):
        return "new" if change.kind is ChangeKind.ADDED else change.kind.value
    return f"{change.kind.value} ({100 * (change.ratio - 1):+.0f}%)"


def _fastest(rows: Iterable[Row]) -> Row | None:
    timed = [row for row in rows if row.status is Status.OK and row.speedup]
    return max(timed, key=lambda row: row.speedup or 0.0, default=None)


def _ratio(ours: Row | None, other: Row | None) -> float | None:
    if ours is None or other is None or not ours.speedup or not other.speedup:
        return None
    return ours.speedup / other.speedup


def _place(row: Row) -> tuple[str, str, str]:
    return (row.operator, f"{row.input_label} {row.dtype}", row.implementation)
