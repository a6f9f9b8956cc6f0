"""What a search says on stderr: the log, what is tuned, each generation, the end; and a bar.

Lines are records of the logger "tilesmith.autotune". Where the user has set up logging, they go
there; otherwise to stderr. On success nothing is above INFO. Generated code is never logged.
"""

from __future__ import annotations

import atexit
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from math import inf
from typing import Any

from typing_extensions import override

from tilesmith.diagnostics.wording import (
    counted,
    first_line,
    ms_text,
    noise_text,
    number_text,
    percent_text,
)
from tilesmith.schedule.config import Config
from tilesmith.store.config_text import SearchLog, config_text, short_text, stored_text
from tilesmith.store.outcome import Outcome
from tilesmith.tune.listener import Generation, Listener, Progress, SearchStart, time_in_finals
from tilesmith.tune.result import Final, TuneResult, roofline_text, summarize_rejected


class LogListener:
    """Writes the log of one search."""

    def __init__(
        self,
        level: int = logging.INFO,
        *,
        kernel: str = "",
        logger: logging.Logger | None = None,
        tells_failures: bool = True,
    ) -> None:
        self._log = SearchLog(level, logger)
        self._level = level
        self._tells_failures = tells_failures
        self._kernel = kernel
        self._default: Config | None = None
        self._final: Final | None = None

    def on_start(self, start: SearchStart) -> None:
        """Say what is tuned, where and how."""
        self._kernel, self._default = start.kernel, start.default
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
        lines: Iterable[str] = end_lines(result, self._final, self._default)
        rejected = summarize_rejected(result.counts, result.failures)
        if rejected and self._tells_failures:
            lines = [rejected, *lines]
        if result.is_cached:
            lines = [stored_text(self._kernel, result.config, result.ms)]
        self._log.write(logging.INFO, result.seconds, *lines)
        if result.doubt:
            self._log.write(logging.WARNING, result.seconds, result.doubt)


def header_lines(start: SearchStart) -> Iterator[str]:
    """What is tuned, where and how."""
    yield f"tuning {start.kernel} on {start.device or start.target}"
    if start.arguments:
        yield f"arguments: {start.arguments}"
    if start.meaning:
        yield f"times: {start.meaning}"
    budget = f"budget {start.budget_s:g} s"
    size, space = start.space_size, ""
    if size is not None:
        space = f", {f'{size:,.0f}' if size < 1e6 else f'{size:.1e}'} configs possible"
    yield f"method: {start.method}, {budget}, random seed {start.seed}{space}"
    origins = Counter(seed.origin or "seed" for seed in start.seeds)
    listed = ", ".join(name if n == 1 else f"{n} {name}" for name, n in origins.items())
    seeds = f"{counted(len(start.seeds), 'config')} ({listed})" if listed else "random configs"
    known = counted(start.num_known, "measurement")
    yield f"starting from: {seeds}{f'; {known} known from before' if start.num_known else ''}"
    roofline = "" if start.roofline_ms is None else f"; roofline {ms_text(start.roofline_ms)}"
    yield f"results judged by: {start.judge or 'nothing'}{roofline}"


def generation_text(generation: Generation) -> str:
    """One generation: how many, how many failed, how the times spread, the best so far."""
    best, tried = generation.best, counted(generation.num_tried, "candidate")
    counts = f"{tried}, {generation.num_failed} failed, {generation.num_replaced} replaced"
    low, middle, high = map(number_text, (generation.min_ms, generation.mid_ms, generation.max_ms))
    times = f"min={low} mid={middle} max={high} ms"
    found = "nothing works yet" if best is None else f"best {config_text(best.config)}"
    return f"generation {generation.number}: {counts}, {times}, {found}"


def outcome_text(outcome: Outcome) -> str:
    """One candidate: its time or what is wrong with it."""
    if outcome.time_ms < inf:
        mark = " (known)" if outcome.is_recalled else " (disturbed)" if outcome.is_disturbed else ""
        found = f"{ms_text(outcome.time_ms)}{mark}"
    else:
        found = outcome.verdict.value
    reason = f" ({first_line(outcome.reason)})" if outcome.reason else ""
    return f"{found}{reason}: {config_text(outcome.config)}"


def end_lines(result: TuneResult, final: Final | None, default: Config | None) -> Iterator[str]:
    """The end of a search, for people."""
    recalled = f" ({result.num_recalled} known before)" if result.num_recalled else ""
    tried = counted(result.num_tried, "config")
    yield f"{tried} tried{recalled} in {result.seconds:.1f} s: {result.stop.value}"
    if result.timeline.text:
        yield result.timeline.text
    if result.is_measured:
        yield best_text(result, final, default)
        yield f"to pin it: {result.paste_line}"


def best_text(result: TuneResult, final: Final | None, default: Config | None) -> str:
    """The winner's time, how sure it is, and how it stands to other figures."""
    parts = [f"best {ms_text(result.ms)} (spread {noise_text(result.spread)})"]
    if result.ties:
        times = [standing.median_ms for standing in final.ties] if final else [1.0]
        within = percent_text(max(result.noise, max(times) / min(times) - 1))
        parts.append(f"tied with {counted(result.ties, 'other')} within {within}")
    if result.roofline_ms and not result.is_unsteady:
        parts.append(roofline_text(result.roofline_ms, result.ms))
    default_ms = time_in_finals(default, final) or result.default_ms
    if result.config == default:
        parts.append("the default config itself")
    elif result.is_disturbed:
        # Its factor would be that of the scheduler, not of the config.
        parts.append("compared with the default on a busy machine: no factor is told")
    elif default_ms is not None:
        parts.append(compare_text(result.ms, default_ms))
    return ", ".join(filter(None, parts))


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


def make_progress(*, is_enabled: bool = True) -> Listener | None:
    """The bar, if it is wanted, stderr is a terminal and rich is there."""
    is_terminal = False
    with suppress(AttributeError, ValueError):  # there is no stderr, or it is closed
        is_terminal = sys.stderr.isatty()
    if not is_enabled or not is_terminal or find_spec("rich") is None:
        return None
    return ProgressListener(make_bar())


def make_bar(console: Any = None) -> Any:
    """The bar itself: a ``rich.progress.Progress``."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as Bar

    return Bar(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.completed:.0f}/{task.total:.0f} s", markup=False),
        TextColumn("{task.fields[status]}", markup=False),
        console=console or Console(stderr=True),
        # What is logged meanwhile appears above the bar.
        redirect_stdout=False,
        redirect_stderr=True,
        transient=True,
    )


def status_text(progress: Progress, num_failed: int) -> str:
    """The words behind the bar."""
    rate = progress.num_tried / progress.elapsed_s if progress.elapsed_s > 0 else 0.0
    parts = [f"{counted(progress.num_tried, 'config')} ({rate:.1f}/s)", f"{num_failed} failed"]
    if progress.best is not None:
        parts.append(f"best {ms_text(progress.best.time_ms)} {short_text(progress.best.config)}")
    return ", ".join(parts)


class ProgressListener(Listener):
    """Keeps a bar up to date while a search runs."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task: Any = None
        self._num_failed = 0

    @override
    def on_start(self, start: SearchStart) -> None:
        name = f"tuning {start.kernel}"
        self._task = self._bar.add_task(name, total=start.budget_s, status="starting")
        self._bar.start()
        # A process that is made to end in the middle must not leave a terminal without cursor.
        atexit.register(self._bar.stop)

    @override
    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        self._num_failed += not outcome.verdict.is_timed
        self._bar.update(
            self._task,
            completed=min(progress.elapsed_s, progress.budget_s),
            status=status_text(progress, self._num_failed),
        )

    @override
    def on_end(self, result: TuneResult) -> None:
        self._bar.stop()
        atexit.unregister(self._bar.stop)
