"""The page of a search, with its pictures: how times fell, and how well they were predicted.

The page is one self-contained HTML file: no request leaves it, everything in it is escaped.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from html import escape
from math import inf, log10
from pathlib import Path
from typing import Any

from tilesmith.diagnostics.wording import counted, first_line, ms_text, noise_text, number_text
from tilesmith.lab import pages
from tilesmith.lab.pages import LIGHT, Theme
from tilesmith.lab.reports import with_suffix
from tilesmith.measure.ranks.correlation import rank_correlation
from tilesmith.store.config_text import LOGGER_NAME, config_text, differences
from tilesmith.store.lookup import installed_versions
from tilesmith.store.outcome import Outcome
from tilesmith.tune.listener import History
from tilesmith.tune.result import TuneResult, rejections, roofline_text

NUM_BEST = 20
PACKAGES = ("tilesmith", "torch", "triton", "llvmlite", "numpy")
_RESOURCES = {"shared_bytes": "shared, KiB", "registers": "registers", "spills": "spills"}
SIZE = (9.0, 5.0)
SQUARE = (6.2, 6.0)


def make_page(history: History) -> str:
    """The page, from what a search told."""
    kernel = history.start.kernel if history.start else "kernel"
    tried = pages.picture(partial(draw_search, history), "times of the configs tried")
    meaning = "predicted and measured times"
    predicted = pages.picture(partial(draw_predictions, history), meaning, "narrow")
    return pages.document(
        f"Tuning {kernel}",
        (
            _heading(history),
            _result(history),
            pages.section("The search", tried),
            pages.section("Best configs", _best_table(history)),
            pages.section("Side by side", _finals(history)),
            pages.section("The winner in full", _winner(history)),
            pages.section("Rejected", _failures(history)),
            pages.section("Prediction", predicted),
            pages.section("How it was done", _method(history)),
        ),
    )


def _heading(history: History) -> str:
    start = history.start
    if start is None:
        return "<h1>Tuning</h1>"
    where = f"on {start.device or start.target}"
    where += f"; times are {start.meaning}" if start.meaning else ""
    return (
        f"<header><h1>{escape(start.kernel)}</h1>\n"
        f'<p class="soft">tuned {escape(where)}</p>\n'
        f"<p><code>{escape(start.arguments)}</code></p></header>"
    )


def _result(history: History) -> str:
    result = history.result
    if result is None:
        return ""
    problem = "\n".join(filter(None, (result.problem.strip(), result.doubt)))
    shown = f'<div class="problem">{escape(problem)}</div>\n' if problem else ""
    return (
        f"{shown}{pages.figures(_figures(history, result))}\n"
        f"<p>To pin this config:</p>\n<pre>{escape(result.paste_line)}</pre>"
    )


def _figures(history: History, result: TuneResult) -> Iterable[tuple[str, str]]:
    """The numbers at the top: value and meaning."""
    if result.is_measured:
        yield ms_text(result.ms), f"median, spread {noise_text(result.spread)}"
    default_ms = history.default_ms
    if result.config == history.default:
        yield "default", "is the fastest config itself"
    elif result.is_disturbed:
        yield "busy", "machine: no factor over the default is told"
    elif default_ms and result.is_measured:
        ratio = default_ms / result.ms
        yield f"{ratio:.2f}×", f"the speed of the default ({ms_text(default_ms)})"
    if history.roofline_ms and result.is_measured:
        share, _, rest = roofline_text(history.roofline_ms, result.ms).partition(" ")
        yield share, f"{rest} ({ms_text(history.roofline_ms)})"
    yield str(result.num_tried), f"configs tried, {result.num_recalled} known before"
    yield f"{result.seconds:.1f} s", f"of {result.budget_s:g} s: {result.stop.value}"


def _best_table(history: History) -> str:
    outcomes = sorted((t.outcome for t in history.timed), key=lambda outcome: outcome.time_ms)
    best = outcomes[:NUM_BEST]
    winner = history.result.config if history.result else None
    # A CPU has none of these.
    shown = [name for name in _RESOURCES if any(_resource_text(o, name) for o in best)]
    rows = [
        pages.row(_best_cells(place, outcome, shown), "winner" if outcome.config == winner else "")
        for place, outcome in enumerate(best, 1)
    ]
    heads = ["#", "time, ms", "spread", *(_RESOURCES[name] for name in shown), "build, s"]
    made = pages.table([*heads, "found by", "config"], rows, range(len(heads)))
    more = len(outcomes) - NUM_BEST
    rest = pages.note(f"and {counted(more, 'slower config')}") if more > 0 else ""
    return made + rest if rows else ""


def _best_cells(place: int, outcome: Outcome, resources: Sequence[str]) -> list[str]:
    spread = (outcome.high_ms - outcome.low_ms) / outcome.time_ms
    numbers = [
        str(place),
        number_text(outcome.time_ms),
        noise_text(spread) if spread < inf else "-",
        *(_resource_text(outcome, name) or "-" for name in resources),
        f"{outcome.build_s:.2f}",
    ]
    origin = "journal" if outcome.is_recalled else outcome.candidate.origin
    cells = [pages.cell(number, "number") for number in numbers]
    return [*cells, pages.cell(origin), pages.code_cell(config_text(outcome.config), "config")]


def _resource_text(outcome: Outcome, name: str) -> str:
    use = getattr(outcome.resources, name)
    if use is None:
        return ""
    return f"{use / 1024:.4g}" if name == "shared_bytes" else str(use)


def _finals(history: History) -> str:
    final = history.final
    if final is None:
        return ""
    rows: list[str] = []
    for standing in final.standings:
        cells = [
            pages.cell(number_text(standing.median_ms), "number"),
            pages.cell(noise_text(standing.spread), "number"),
            pages.cell("tied" if standing.is_tied else "slower"),
            pages.code_cell(config_text(standing.config), "config"),
        ]
        rows.append(pages.row(cells, "winner" if standing == final.winner else ""))
    words = (
        f"The best {len(rows)} measured in turns. The fastest measured twice differed by "
        f"{noise_text(final.noise)} from itself. Of those that tie, the default wins, or else "
        "the simplest."
    )
    return pages.note(words) + pages.table(["time, ms", "spread", "", "config"], rows, range(2))


def _winner(history: History) -> str:
    result = history.result
    if result is None:
        return ""
    default = history.default
    changed = differences(result.config, default)
    rows: list[str] = []
    for name in dict.fromkeys([*result.config, *changed]):
        values = (result.config.get(name), default.get(name) if default is not None else None)
        cells = [pages.code_cell("-" if value is None else repr(value)) for value in values]
        style = "changed" if name in changed else ""
        rows.append(pages.row([pages.code_cell(name), *cells], style))
    words = f"{counted(len(changed), 'key')} differ from the default."
    if not changed:
        words = "The winner is the default config."
    if default is None:
        words = "The default config is not known."
    return pages.note(words) + pages.table(["key", "winner", "default"], rows, style="facts")


def _failures(history: History) -> str:
    groups = rejections(trial.outcome for trial in history.trials)
    most = max((len(group) for group in groups.values()), default=0)
    rows: list[str] = []
    for verdict, group in groups.items():
        width = 160 * len(group) / most
        reason, config = first_line(group[0].reason, 400), config_text(group[0].config)
        cells = [
            pages.cell(verdict.value),
            pages.cell(str(len(group)), "number"),
            f'<td><div class="bar" style="width:{width:.0f}px"></div></td>',
            f'<td class="config">{escape(reason)}<br><code>{escape(config)}</code></td>',
        ]
        rows.append(pages.row(cells))
    heads = ["why", "configs", "", "one of them"]
    return pages.table(heads, rows, range(1, 2)) if rows else ""


def _method(history: History) -> str:
    start = history.start
    values: dict[str, str] = {}
    if start is not None:
        values = {
            "method": start.method,
            "random seed": str(start.seed),
            "budget": f"{start.budget_s:g} s",
            "configs to start from": str(len(start.seeds)),
            "configs possible": "" if start.space_size is None else f"{start.space_size:.3g}",
            "results judged by": start.judge,
            "because": start.judge_reason,
            "device": start.device,
            "target": start.target,
        }
    system = f"{platform.system()} on {platform.machine()}"
    environment = {"Python": platform.python_version(), "system": system}
    return pages.facts_table({**values, **installed_versions(PACKAGES), **environment})


class ReportListener(History):
    """Remembers a search; writes ``<prefix>.html``, ``.png`` and ``.predicted.png``."""

    def __init__(self, prefix: Path) -> None:
        super().__init__()
        self.prefix = prefix

    def on_end(self, result: TuneResult) -> None:
        """Write the files."""
        super().on_end(result)
        if self.trials:
            write_report(self, self.prefix)


def write_report(history: History, prefix: Path) -> list[Path]:
    """Write what can be written; the paths of what was."""
    jobs: dict[str, Callable[[], bytes | None]] = {
        ".html": lambda: make_page(history).encode(),
        ".png": lambda: draw_search(history),
        ".predicted.png": lambda: draw_predictions(history),
    }
    written: list[Path] = []
    for suffix, make in jobs.items():
        path = with_suffix(prefix, suffix)
        try:
            content = make()
            if content is None:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            written.append(path)
        except (OSError, pages.PictureError) as error:
            logging.getLogger(LOGGER_NAME).warning("%s is not written: %s", path, error)
    return written


def draw_search(history: History, theme: Theme = LIGHT) -> bytes | None:
    """Time against configs tried, with the best so far; None when nothing was tried."""
    if not history.trials:
        return None
    figure, axes = pages.new_figure(SIZE, theme)
    axes.set(yscale="log", xlabel="configs tried", ylabel="time, ms (log scale)")
    _draw_times(axes, history, theme)
    _draw_references(axes, history, theme)
    _set_ranges(axes, history)
    return pages.finish(figure, _search_title(history), theme, gap=18)


def draw_predictions(history: History, theme: Theme = LIGHT) -> bytes | None:
    """Measured against predicted times; None with fewer than three pairs."""
    pairs = predicted_pairs(history)
    if len(pairs) < 3:
        return None
    figure, axes = pages.new_figure(SQUARE, theme)
    predicted, measured = [p for p, _ in pairs], [m for _, m in pairs]
    low, high = min(predicted + measured) / 1.3, max(predicted + measured) * 1.3
    axes.set(xscale="log", yscale="log")
    axes.set(xlabel="predicted time, ms", ylabel="measured time, ms")
    axes.plot([low, high], [low, high], c=theme.roofline, lw=1.3, ls="--", label="as predicted")
    axes.scatter(predicted, measured, s=20, c=theme.trial, alpha=0.8, lw=0, label="one config")
    axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    pages.format_log_axis(axes.xaxis, low, high)
    pages.format_log_axis(axes.yaxis, low, high)
    rank = rank_correlation(predicted, measured)
    title = f"Predicted and measured, {len(pairs)} configs\nrank correlation (Spearman) {rank:.2f}"
    return pages.finish(figure, title, theme)


def best_so_far(history: History) -> tuple[list[int], list[float]]:
    """Where the best time changed, and what it was; the last point is the end of the search."""
    places: list[int] = []
    bests: list[float] = []
    for trial in history.timed:
        if not bests or trial.outcome.time_ms < bests[-1]:
            places.append(trial.number)
            bests.append(trial.outcome.time_ms)
    return [*places, len(history.trials)], [*bests, *bests[-1:]]


def predicted_pairs(history: History) -> list[tuple[float, float]]:
    """(predicted, measured) of every trial that has both."""
    pairs = [(t.outcome.candidate.predicted_ms, t.outcome.time_ms) for t in history.timed]
    return [(predicted, measured) for predicted, measured in pairs if predicted and predicted < inf]


def _draw_times(axes: Any, history: History, theme: Theme) -> None:
    timed = history.timed
    if not timed:
        return
    places = [trial.number for trial in timed]
    times = [trial.outcome.time_ms for trial in timed]
    look = {"c": theme.trial, "alpha": 0.8, "lw": 0, "label": "one config", "zorder": 4.5}
    size = 34 if len(times) < 50 else 18 if len(times) < 500 else 9
    axes.scatter(places, times, s=size, **look)
    places, bests = best_so_far(history)
    axes.step(places, bests, where="post", c=theme.best, lw=2.2, label="best so far", zorder=4)
    axes.scatter(places[-2], bests[-1], s=46, c=theme.best, lw=0, zorder=5)


def _set_ranges(axes: Any, history: History) -> None:
    """Room for all times and lines, and for the marks of failures above them."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0, len(history.trials) * 1.02 + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    lines = [t for t in (history.default_ms, history.roofline_ms) if t]
    times = [trial.outcome.time_ms for trial in history.timed] + lines or [1.0]
    low, high = min(times), max(times)
    margin = max(0.06 * log10(high / low), 0.02)
    bottom, top = low / 10**margin, high * 10 ** (2.5 * margin)
    axes.set_ylim(bottom, top)
    pages.format_log_axis(axes.yaxis, bottom, top)


def _draw_references(axes: Any, history: History, theme: Theme) -> None:
    """Lines at times to compare with; failures, which have none, are marked at the upper edge."""
    lines = (
        ("default config", history.default_ms, theme.default, "--"),
        ("roofline", history.roofline_ms, theme.roofline, ":"),
    )
    for name, ms, color, style in lines:
        if ms:
            label = f"{name}, {number_text(ms)} ms"
            axes.axhline(ms, c=color, lw=1.5, ls=style, label=label, zorder=3)
    places = [trial.number for trial in history.failed]
    if places:
        edge = {"transform": axes.get_xaxis_transform(), "clip_on": False, "marker": "x"}
        look = {"s": 22, "c": theme.failure, "lw": 1.2, "zorder": 3}
        label = f"rejected ({len(places)})"
        axes.scatter(places, [0.975] * len(places), label=label, **edge, **look)


def _search_title(history: History) -> str:
    start, result, roofline_ms = history.start, history.result, history.roofline_ms
    name = f"{start.kernel} on {start.device}" if start else "search"
    if result is None or not result.is_measured:
        return name
    share = f", {roofline_text(roofline_ms, result.ms)}" if roofline_ms else ""
    return f"{name}: {number_text(result.ms)} ms{share}"
