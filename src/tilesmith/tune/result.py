"""What a search ends with: the Config, how sure its time is, and why others were not used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import ClassVar

from tilesmith.diagnostics.wording import noise_text, percent_text
from tilesmith.schedule.config import Config, package_name
from tilesmith.store.outcome import Outcome, Verdict

UNSTEADY = 0.3
"""Times that differ by more from their own repetition, or are disturbed more often, say little."""
MOST_DISTURBED = 0.9
"""Of the measurements: hardly one of them was left alone."""
MAX_LINES = 4
"""Of one example's message."""


@dataclass(frozen=True)
class Timeline:
    """Seconds by name: moments are counted from the start of the search."""

    ORDER: ClassVar[Mapping[str, str]] = {
        "saved": "workload saved at",
        "runner": "runner up at",
        "loading": "loaded in",
        "reference": "reference in",
        "prepared": "ready at",
        "build": "first build at",
        "tried": "first candidate at",
    }
    """What there is to note before the first measurement, and how it is said."""
    MEASURED: ClassVar[str] = "measured"
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def note(self, name: str, seconds: float) -> None:
        """Keep when something happened first, or how long it took."""
        self.seconds.setdefault(name, max(0.0, seconds))

    @property
    def text(self) -> str:
        """In one line; empty if nothing was noted."""
        noted = [(words, self.seconds[n]) for n, words in self.ORDER.items() if n in self.seconds]
        listed = ", ".join(f"{words} {value:.2f}" for words, value in noted)
        if self.MEASURED not in self.seconds:
            return f"no time yet: {listed}" if listed else ""
        after = f"first time after {self.seconds[self.MEASURED]:.2f} s"
        return f"{after}: {listed}" if listed else after


class StopReason(str, Enum):
    """Why a search ended."""

    FINISHED = "the search has nothing more to ask"
    BUDGET = "the budget is used up"
    GENERATIONS = "the number of generations is reached"
    ROOFLINE = "the roofline is reached"
    INTERRUPTED = "interrupted"
    ERROR = "error"
    NO_RUNNER = "candidates cannot be run"
    CACHED = "found in the cache"


@dataclass(frozen=True)
class Standing:
    """One finalist: its time when all finalists were measured side by side."""

    config: Config
    median_ms: float
    low_ms: float
    """20th percentile."""
    high_ms: float
    """80th percentile."""
    is_tied: bool = False
    """Whether it cannot be told from the fastest, noise considered."""

    @property
    def spread(self) -> float:
        """Distance of the percentiles as a share of the median."""
        return (self.high_ms - self.low_ms) / self.median_ms if self.median_ms else 0.0


@dataclass(frozen=True)
class Final:
    """The end of the finals: the winner is the simplest of those that tie with the fastest."""

    winner: Standing
    standings: tuple[Standing, ...]
    """All finalists, fastest first."""
    noise: float
    """The noise floor: how far the duplicate of the fastest was from it, as a share."""

    @property
    def ties(self) -> tuple[Standing, ...]:
        """Those that cannot be told from the fastest, the winner among them."""
        return tuple(standing for standing in self.standings if standing.is_tied)


@dataclass(frozen=True)
class TuneResult:
    """The end of a search."""

    config: Config
    """The winner; a safe Config when nothing could be measured."""
    stop: StopReason
    ms: float = inf
    spread: float = 0.0
    """Distance of the 80th from the 20th percentile, as a share of the median."""
    noise: float = 0.0
    ties: int = 0
    """How many other finalists cannot be told from the winner."""
    num_tried: int = 0
    num_recalled: int = 0
    """How many of them were known from the journal."""
    counts: Mapping[Verdict, int] = field(default_factory=dict[Verdict, int])
    seconds: float = 0.0
    budget_s: float = 0.0
    judge: str = ""
    """What results were compared with, in words."""
    default_ms: float | None = None
    """Time of the default Config, if it was measured."""
    predicted_ms: float | None = None
    """What the model said of the winner."""
    roofline_ms: float | None = None
    problem: str = ""
    """Why the search could not do its work, if so; may have several lines."""
    failures: tuple[Outcome, ...] = ()
    """Candidates that were not usable, in the order they were tried."""
    timeline: Timeline = field(default_factory=Timeline)
    disturbed: float = 0.0
    """The share of measurements on the host during which others had its cores."""

    @property
    def is_disturbed(self) -> bool:
        """Whether its times are those of a busy machine."""
        return self.disturbed > UNSTEADY

    @property
    def is_unsteady(self) -> bool:
        """Whether its times say little: disturbed, or not the same when measured again."""
        return self.is_disturbed or self.noise > UNSTEADY

    @property
    def is_meaningless(self) -> bool:
        """Whether all times are those of a busy machine, or most and wide apart: none is kept."""
        is_wide = self.spread > 1.0
        return self.disturbed >= (MOST_DISTURBED if is_wide else 1.0)

    @property
    def doubt(self) -> str:
        """What to think of times during which the machine did something else; empty if nothing."""
        advice = "search again when the device is quiet (force=True, or --force)"
        if not self.is_disturbed:
            apart = f"the winner's own times differed by {noise_text(self.noise)}"
            return f"{apart}: {advice}" if self.is_unsteady else ""
        share = percent_text(self.disturbed)
        kept = "an earlier winner that was faster stays stored"
        if self.is_meaningless:
            kept = "nothing is stored: these times tell no config from another"
        return f"others had the cores in {share} of the measurements: {advice}; {kept}"

    @property
    def is_cached(self) -> bool:
        """Whether a stored winner was taken without measuring."""
        return self.stop is StopReason.CACHED

    @property
    def is_measured(self) -> bool:
        """Whether the Config has a time."""
        return self.ms < inf

    @property
    def paste_line(self) -> str:
        """The decorator that pins the Config."""
        return f"@{package_name()}.kernel(config={self.config!r})"


def roofline_text(roofline_ms: float, ms: float) -> str:
    """How near a time is to the roofline, which is an estimate and may be beaten.

    Example:
        >>> roofline_text(0.9, 1.0), roofline_text(1.2, 1.0)
        ('90% of the roofline', 'beyond the estimated roofline')
    """
    share = roofline_ms / ms
    if share >= 1.005:
        return "beyond the estimated roofline"
    return f"{percent_text(share)} of the roofline"


def summarize_rejected(counts: Mapping[Verdict, int], failures: Sequence[Outcome]) -> str:
    """One line with counts and reasons; empty when every candidate was usable.

    Example:
        "12 of 80 candidates were not used: 7 out of resources, 3 crashed, 2 wrong result (...)"
    """
    rejected = {verdict: n for verdict, n in counts.items() if not verdict.is_timed}
    num_rejected = sum(rejected.values())
    if not num_rejected:
        return ""
    # Of wrong results the first line of what was found: users will want to know how wrong.
    wrong = [outcome.reason for outcome in failures if outcome.verdict is Verdict.WRONG]
    example = next((f" (e.g. {reason.splitlines()[0]})" for reason in wrong if reason), "")
    parts = [
        f"{count} {verdict.value}{example if verdict is Verdict.WRONG else ''}"
        for verdict, count in sorted(rejected.items(), key=lambda item: -item[1])
    ]
    verb = "was" if num_rejected == 1 else "were"
    total = sum(counts.values())
    return f"{num_rejected} of {total} candidates {verb} not used: {', '.join(parts)}"


def describe_total_failure(failures: Sequence[Outcome]) -> str:
    """All causes with their frequency, each with one example; for a search without any success."""
    if not failures:
        return "no candidate was tried"
    lines = [f"none of {len(failures)} candidates can be used:"]
    for verdict, group in rejections(failures).items():
        lines.append(f"  {len(group):4d}  {verdict.value}, e.g. {group[0].config}")
        lines += [f"        {line}" for line in group[0].reason.splitlines()[:MAX_LINES]]
    return "\n".join(lines)


def rejections(outcomes: Iterable[Outcome]) -> dict[Verdict, list[Outcome]]:
    """Outcomes without a time by verdict, the most frequent first."""
    groups: dict[Verdict, list[Outcome]] = {}
    for outcome in outcomes:
        if not outcome.verdict.is_timed:
            groups.setdefault(outcome.verdict, []).append(outcome)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))
