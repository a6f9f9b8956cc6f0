"""What the CPU benchmark's processes tell each other, and how it reads in a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

SMALL_CALLS = "small calls"
SMALL_CALL_GOAL_US = 8.0
GEOMEAN_GOAL = 1.2
HEADERS = [
    "workload", "size", "ours ms", "eager ms", "compile ms", "vs better", "spread", "goal", "",
    "rate", "noisy", "notes",
]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One workload; a failed one has ``problem`` and what was known before."""

    name: str
    size: str
    goal: float | None = None
    ours_ms: float | None = None
    eager_ms: float | None = None
    compile_ms: float | None = None
    ratio: float | None = None
    """The better baseline's time over ours: above one we are faster."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    rate: float | None = None
    rate_unit: str = ""
    num_rounds: int = 0
    num_noisy: int = 0
    num_noisy_kept: int = 0
    took_s: float = 0.0
    problem: str = ""
    notes: list[str] = field(default_factory=list[str])

    @property
    def verdict(self) -> str:
        """One word on how it went."""
        if self.problem:
            return "wrong" if self.problem.startswith("wrong") else "failed"
        if self.ratio is None or self.goal is None:
            return "-"
        return "ok" if self.ratio >= self.goal else "miss"

    def cells(self) -> list[str]:
        """One line of the table."""
        spread = "-" if self.ratio is None else f"{self.ratio_low:.2f}-{self.ratio_high:.2f}"
        noisy = f"{self.num_noisy_kept} of {self.num_rounds}" if self.num_noisy_kept else "-"
        return [
            self.name,
            self.size,
            number(self.ours_ms, ".2f"),
            number(self.eager_ms, ".2f"),
            number(self.compile_ms, ".2f"),
            number(self.ratio, ".2f"),
            spread,
            number(self.goal, ".2f"),
            self.verdict,
            f"{number(self.rate, '.1f')} {self.rate_unit}".strip(),
            noisy,
            "; ".join([self.problem] * bool(self.problem) + self.notes),
        ]


@dataclass(frozen=True)
class SmallCalls:
    """Microseconds of one call with 1024 elements."""

    ours_us: float | None = None
    example_us: float | None = None
    """Of the kernel in examples/, whose host code broadcasts and promotes."""
    eager_us: float | None = None
    compile_us: float | None = None
    problem: str = ""

    def sentence(self) -> str:
        """All of it in a line."""
        if self.ours_us is None:
            return f"Small calls (add of 1024 elements): failed, {self.problem}"
        verdict = "ok" if self.ours_us < SMALL_CALL_GOAL_US else "miss"
        times = [
            f"ours {self.ours_us:.1f} us",
            f"with the host code of examples/add.py {number(self.example_us, '.1f')} us",
            f"eager {number(self.eager_us, '.1f')} us",
            f"torch.compile {number(self.compile_us, '.1f')} us",
        ]
        goal = f"goal below {SMALL_CALL_GOAL_US:.0f} us: {verdict}"
        return f"Small calls (add of 1024 elements): {', '.join(times)}; {goal}"


def number(value: float | None, form: str) -> str:
    """A number, or a dash for none."""
    return "-" if value is None else format(value, form)


def geomean(rows: Sequence[Row]) -> float | None:
    """Geometric mean of the ratios there are."""
    ratios = [row.ratio for row in rows if row.ratio is not None]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def noise(rows: Sequence[Row]) -> str:
    """How quiet the machine was."""
    kept = sum(row.num_noisy_kept for row in rows)
    return (
        f"Others disturbed {kept + sum(row.num_noisy for row in rows)} rounds; of "
        f"{sum(row.num_rounds for row in rows)} that count, {kept} are such (column noisy)."
    )


def summary(rows: Sequence[Row]) -> str:
    """Goals met and the geometric means."""
    judged = [row for row in rows if row.goal is not None]
    met = sum(row.verdict == "ok" for row in judged)
    over_goals = geomean(judged)
    verdict = "-" if over_goals is None else "ok" if over_goals >= GEOMEAN_GOAL else "miss"
    return (
        f"Goals met: {met} of {len(judged)}. Geometric mean of their ratios: "
        f"{number(over_goals, '.2f')} (goal {GEOMEAN_GOAL}: {verdict}); "
        f"with the rows that have no goal: {number(geomean(rows), '.2f')}."
    )
