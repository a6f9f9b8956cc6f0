"""The reports that a search gets by its options: log, progress bar, tables, picture and page.

The page is one self-contained HTML file: no request leaves it, everything in it is escaped.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from html import escape
from math import inf
from pathlib import Path

from tilesmith.diagnostics.wording import counted, first_line, ms_text, number_text, percent_text
from tilesmith.lab.line_file import with_suffix
from tilesmith.lab.pages import (
    PictureError,
    code_cell,
    document,
    facts_table,
    figures,
    head,
    note,
    number_cell,
    picture,
    row,
    section,
    table,
    text_cell,
)
from tilesmith.schedule.config import Config
from tilesmith.store.conditions import installed_versions
from tilesmith.store.config_text import config_text, differences
from tilesmith.store.outcome import Outcome
from tilesmith.store.search_log import LOGGER_NAME
from tilesmith.tune.listener import History, Listener
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.report.log import LogListener, make_progress, roofline_text
from tilesmith.tune.report.picture import draw_predictions, draw_search
from tilesmith.tune.report.tables import TableListener
from tilesmith.tune.result import TuneResult, rejections

NUM_BEST = 20
TRIED, PREDICTED = "times of the configs tried", "predicted and measured times"
PACKAGES = ("tilesmith", "torch", "triton", "llvmlite", "numpy")
_RESOURCES = {"shared_bytes": "shared, KiB", "registers": "registers", "spills": "spills"}


def make_page(history: History) -> str:
    """The page, from what a search told."""
    kernel = history.start.kernel if history.start else "kernel"
    return document(
        f"Tuning {kernel}",
        (
            _heading(history),
            _result(history),
            section("The search", picture(partial(draw_search, history), TRIED)),
            section("Best configs", _best_table(history)),
            section("Side by side", _finals(history)),
            section("The winner in full", _winner(history)),
            section("Rejected", _failures(history)),
            section("Prediction", picture(partial(draw_predictions, history), PREDICTED, "narrow")),
            section("How it was done", _method(history)),
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
    problem = result.problem.strip()
    shown = f'<div class="problem">{escape(problem)}</div>\n' if problem else ""
    return (
        f"{shown}{figures(_figures(history, result))}\n"
        f"<p>To pin this config:</p>\n<pre>{escape(result.paste_line)}</pre>"
    )


def _figures(history: History, result: TuneResult) -> Iterable[tuple[str, str]]:
    """The numbers at the top: value and meaning."""
    if result.is_measured:
        yield ms_text(result.ms), f"median, spread {percent_text(result.spread)}"
    default_ms = history.default_ms
    if result.config == history.default:
        yield "default", "is the fastest config itself"
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
        row(_best_cells(place, outcome, shown), "winner" if outcome.config == winner else "")
        for place, outcome in enumerate(best, 1)
    ]
    heads = ["#", "time, ms", "spread", *(_RESOURCES[name] for name in shown), "build, s"]
    made = table(head([*heads, "found by", "config"], range(len(heads))), rows)
    more = len(outcomes) - NUM_BEST
    rest = note(f"and {counted(more, 'slower config')}") if more > 0 else ""
    return made + rest if rows else ""


def _best_cells(place: int, outcome: Outcome, resources: Sequence[str]) -> list[str]:
    spread = (outcome.high_ms - outcome.low_ms) / outcome.time_ms
    origin = "journal" if outcome.is_recalled else outcome.candidate.origin
    return [
        number_cell(str(place)),
        number_cell(number_text(outcome.time_ms)),
        number_cell(percent_text(spread) if spread < inf else "-"),
        *(number_cell(_resource_text(outcome, name) or "-") for name in resources),
        number_cell(f"{outcome.build_s:.2f}"),
        text_cell(origin),
        _config_cell(outcome.config),
    ]


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
            number_cell(number_text(standing.median_ms)),
            number_cell(percent_text(standing.spread)),
            text_cell("tied" if standing.is_tied else "slower"),
            _config_cell(standing.config),
        ]
        rows.append(row(cells, "winner" if standing == final.winner else ""))
    words = (
        f"The best {len(rows)} measured in turns. The fastest measured twice differed by "
        f"{percent_text(final.noise)} from itself. Of those that tie, the default wins, or else "
        "the simplest."
    )
    return note(words) + table(head(["time, ms", "spread", "", "config"], range(2)), rows)


def _winner(history: History) -> str:
    result = history.result
    if result is None:
        return ""
    default = history.default
    changed = differences(result.config, default)
    rows: list[str] = []
    for name in dict.fromkeys([*result.config, *changed]):
        values = (result.config.get(name), default.get(name) if default is not None else None)
        cells = [code_cell("-" if value is None else repr(value)) for value in values]
        rows.append(row([code_cell(name), *cells], "changed" if name in changed else ""))
    words = f"{counted(len(changed), 'key')} differ from the default."
    if not changed:
        words = "The winner is the default config."
    if default is None:
        words = "The default config is not known."
    return note(words) + table(head(["key", "winner", "default"]), rows, "facts")


def _failures(history: History) -> str:
    groups = rejections(trial.outcome for trial in history.trials)
    most = max((len(group) for group in groups.values()), default=0)
    rows: list[str] = []
    for verdict, group in groups.items():
        width = 160 * len(group) / most
        reason, config = first_line(group[0].reason, 400), config_text(group[0].config)
        cells = [
            text_cell(verdict.value),
            number_cell(str(len(group))),
            f'<td><div class="bar" style="width:{width:.0f}px"></div></td>',
            f'<td class="config">{escape(reason)}<br><code>{escape(config)}</code></td>',
        ]
        rows.append(row(cells))
    return table(head(["why", "configs", "", "one of them"], range(1, 2)), rows) if rows else ""


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
    return facts_table({**values, **installed_versions(PACKAGES), **environment})


def _config_cell(config: Config) -> str:
    return code_cell(config_text(config), "config")


def choose_listeners(options: TuneOptions) -> tuple[Listener, ...]:
    """Log, progress bar, tables, and the picture and page that are made at the end."""
    is_quiet = options.log_level > logging.INFO
    bar = make_progress(is_enabled=options.has_progress_bar and not is_quiet)
    # The bar is gone before the log says how it ended.
    found: list[Listener] = [] if bar is None else [bar]
    found.append(LogListener(options.log_level))
    if options.log_path is not None:
        found += [TableListener(options.log_path), ReportListener(options.log_path)]
    return tuple(found)


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
        except (OSError, PictureError) as error:
            logging.getLogger(LOGGER_NAME).warning("%s is not written: %s", path, error)
    return written
