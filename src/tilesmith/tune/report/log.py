"""The log of a search, on stderr through ``logging``: what is tuned, each generation, the end.

Lines are records of the logger "tilesmith.autotune". Where the user has set up logging, they go
there; otherwise to stderr. On success nothing is above INFO. Generated code is never logged.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from math import inf

from tilesmith.diagnostics.wording import counted, first_line, ms_text, number_text, percent_text
from tilesmith.schedule.config import Config
from tilesmith.store.config_text import config_text
from tilesmith.store.outcome import Candidate, Outcome
from tilesmith.store.search_log import SearchLog, stored_text
from tilesmith.tune.listener import Generation, Progress, SearchStart, default_of, time_in_finals
from tilesmith.tune.result import Final, TuneResult, summarize_rejected

BEYOND_ROOFLINE = "beyond the estimated roofline"


class LogListener:
    """Writes the log of one search."""

    def __init__(
        self, level: int = logging.INFO, *, kernel: str = "", logger: logging.Logger | None = None
    ) -> None:
        self._log = SearchLog(level, logger)
        self._level = level
        self._kernel = kernel
        self._default: Config | None = None
        self._final: Final | None = None

    def on_start(self, start: SearchStart) -> None:
        """Say what is tuned, where and how."""
        self._kernel, self._default = start.kernel, default_of(start)
        self._log.write(logging.INFO, 0.0, *header_lines(start))
        if start.judge_reason:
            reason = first_line(start.judge_reason)
            self._log.write(logging.WARNING, 0.0, f"results are judged by {start.judge}: {reason}")

    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        """One line at the level DEBUG."""
        if self._level <= logging.DEBUG:
            self._log.write(logging.DEBUG, progress.elapsed_s, outcome_text(outcome))

    def on_generation(self, generation: Generation) -> None:
        """Say in one line what a generation has found."""
        self._log.write(logging.INFO, generation.elapsed_s, generation_text(generation))

    def on_finals(self, final: Final) -> None:
        """Kept for the end."""
        self._final = final

    def on_end(self, result: TuneResult) -> None:
        """What was rejected, the winner, and the line to paste."""
        if result.problem:
            self._log.write(logging.WARNING, result.seconds, *result.problem.strip().splitlines())
        if result.is_cached:
            self._log.write(
                logging.INFO, result.seconds, stored_text(self._kernel, result.config, result.ms)
            )
        else:
            lines = end_lines(result, self._final, self._default)
            self._log.write(logging.INFO, result.seconds, *lines)
        if result.is_unsteady:
            self._log.write(logging.WARNING, result.seconds, unsteady_text(result))


def unsteady_text(result: TuneResult) -> str:
    """What to think of a search during which the machine did something else, too."""
    advice = "search again when the device is quiet (force=True, or --force)"
    if not result.is_disturbed:
        return f"the winner's own times differed by {percent_text(result.noise)}: {advice}"
    share = percent_text(result.disturbed)
    kept = "an earlier winner that was faster stays stored"
    return f"others had the cores in {share} of the measurements: {advice}; {kept}"


def header_lines(start: SearchStart) -> Iterator[str]:
    """What is tuned, where and how."""
    yield f"tuning {start.kernel} on {start.device or start.target}"
    if start.arguments:
        yield f"arguments: {start.arguments}"
    if start.meaning:
        yield f"times: {start.meaning}"
    budget = f"budget {start.budget_s:g} s"
    space = "" if start.space_size is None else f", {_size_text(start.space_size)} possible"
    yield f"method: {start.method}, {budget}, random seed {start.seed}{space}"
    yield f"starting from: {_seeds_text(start.seeds)}{_known_text(start.num_known)}"
    roofline = "" if start.roofline_ms is None else f"; roofline {ms_text(start.roofline_ms)}"
    yield f"results judged by: {start.judge or 'nothing'}{roofline}"


def generation_text(generation: Generation) -> str:
    """One generation: how many, how many failed, how the times spread, the best so far."""
    best = generation.best
    counts = ", ".join(
        [
            counted(generation.num_tried, "candidate"),
            f"{generation.num_failed} failed",
            f"{generation.num_replaced} replaced",
        ]
    )
    low, middle, high = map(number_text, (generation.min_ms, generation.mid_ms, generation.max_ms))
    found = "nothing works yet" if best is None else f"best {config_text(best.config)}"
    return (
        f"generation {generation.number}: {counts}, min={low} mid={middle} max={high} ms, {found}"
    )


def outcome_text(outcome: Outcome) -> str:
    """One candidate: its time or what is wrong with it."""
    if outcome.time_ms < inf:
        found = f"{ms_text(outcome.time_ms)}{' (known)' if outcome.is_recalled else ''}"
    else:
        found = outcome.verdict.value
    reason = f" ({first_line(outcome.reason)})" if outcome.reason else ""
    return f"{found}{reason}: {config_text(outcome.config)}"


def end_lines(result: TuneResult, final: Final | None, default: Config | None) -> Iterator[str]:
    """The end of a search, for people."""
    rejected = summarize_rejected(result.counts, result.failures)
    if rejected:
        yield rejected
    yield _tried(result)
    if result.timeline.text:
        yield result.timeline.text
    if result.is_measured:
        yield best_text(result, final, default)
        yield f"to pin it: {result.paste_line}"


def best_text(result: TuneResult, final: Final | None, default: Config | None) -> str:
    """The winner's time, how sure it is, and how it stands to other figures."""
    parts = [f"best {ms_text(result.ms)} (spread {percent_text(result.spread)})"]
    if result.ties:
        within = percent_text(_tie_width(result, final))
        parts.append(f"tied with {counted(result.ties, 'other')} within {within}")
    if result.roofline_ms:
        parts.append(roofline_text(result.roofline_ms, result.ms))
    default_ms = time_in_finals(default, final) or result.default_ms
    if result.config == default:
        parts.append("the default config itself")
    elif default_ms is not None:
        parts.append(compare_text(result.ms, default_ms))
    return ", ".join(filter(None, parts))


def _tie_width(result: TuneResult, final: Final | None) -> float:
    """How far those that tie are apart, at least the noise."""
    times = [standing.median_ms for standing in final.ties] if final else []
    return max(result.noise, max(times) / min(times) - 1) if times else result.noise


def _tried(result: TuneResult) -> str:
    recalled = f" ({result.num_recalled} known before)" if result.num_recalled else ""
    tried = counted(result.num_tried, "config")
    return f"{tried} tried{recalled} in {result.seconds:.1f} s: {result.stop.value}"


def _seeds_text(seeds: tuple[Candidate, ...]) -> str:
    if not seeds:
        return "random configs"
    origins = Counter(seed.origin or "seed" for seed in seeds)
    listed = ", ".join(name if n == 1 else f"{n} {name}" for name, n in origins.items())
    return f"{counted(len(seeds), 'config')} ({listed})"


def _known_text(num_known: int) -> str:
    return f"; {counted(num_known, 'measurement')} known from before" if num_known else ""


def _size_text(size: float) -> str:
    return f"{size:,.0f} configs" if size < 1e6 else f"{size:.1e} configs"


def roofline_text(roofline_ms: float, ms: float) -> str:
    """How near a time is to the roofline, which is an estimate and may be beaten.

    Example:
        >>> roofline_text(0.9, 1.0), roofline_text(1.2, 1.0)
        ('90% of the roofline', 'beyond the estimated roofline')
    """
    share = roofline_ms / ms
    return f"{percent_text(share)} of the roofline" if share < 1.005 else BEYOND_ROOFLINE


def compare_text(ms: float, default_ms: float) -> str:
    """How a time stands to that of the default Config, noise aside."""
    if ms <= 0 or default_ms == inf:
        return ""
    ratio = default_ms / ms
    if 0.995 < ratio < 1.005:
        return f"as fast as the default ({ms_text(default_ms)})"
    if ratio < 1:
        return f"{1 / ratio:.2f}x slower than the default ({ms_text(default_ms)})"
    return f"{ratio:.2f}x faster than the default ({ms_text(default_ms)})"
