"""The page of a search: its result, every config that counts, what was rejected, how it was done.

The page is one self-contained HTML file: no request leaves it, everything in it is escaped.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from html import escape
from math import inf
from pathlib import Path

from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.diagnostics.wording import counted, first_line, ms_text, noise_text, number_text
from tilesmith.lab import pages
from tilesmith.lab.drawing.chart import standalone
from tilesmith.lab.reports import with_suffix
from tilesmith.schedule.config import Config
from tilesmith.store.config_text import LOGGER_NAME, config_text, differences
from tilesmith.store.lookup import installed_versions
from tilesmith.store.outcome import Outcome
from tilesmith.tune.listener import History
from tilesmith.tune.report.pictures import Course, Tried, draw_predictions, draw_search
from tilesmith.tune.result import TuneResult, rejections, roofline_text

NUM_BEST = 20
NUM_CODES = 5
"""Of the best: those whose code is on the page, too."""
PACKAGES = ("tilesmith", "torch", "triton", "llvmlite", "numpy")
_RESOURCES = {"shared_bytes": "shared, KiB", "registers": "registers", "spills": "spills"}
Timed = tuple[float, float, Outcome]
"""A time, its spread, and what it is of."""


def make_page(history: History) -> str:
    """The page, from what a search told."""
    kernel = history.start.kernel if history.start else "kernel"
    predicted = pages.pictures(draw_predictions(predicted_pairs(history)))
    narrow = f'<div class="narrow">{predicted}</div>' if predicted else ""
    return pages.document(
        f"Tuning {kernel}",
        (
            _heading(history),
            _result(history),
            pages.section("The search", pages.pictures(draw_search(course_of(history)))),
            pages.section("Best configs", _best_table(history)),
            pages.section("Side by side", _finals(history)),
            pages.section("The winner in full", _winner(history)),
            pages.section("Rejected", _failures(history)),
            pages.section("Prediction", narrow),
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
        f"<header><h1>{escape(start.kernel)}{_busy(history)}</h1>\n"
        f'<p class="soft">tuned {escape(where)}</p>\n'
        f"<p><code>{escape(start.arguments)}</code></p></header>"
    )


def _busy(history: History) -> str:
    """What the headline says where times say little."""
    if history.result is None or not history.result.is_unsteady:
        return ""
    words = "on a busy machine" if history.result.is_disturbed else "times were unsteady"
    return f' <span class="doubt">{words}: these times say little</span>'


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
    elif result.is_unsteady:
        yield "busy" if result.is_disturbed else "unsteady", "no factor over the default is told"
    elif default_ms and result.is_measured:
        ratio = default_ms / result.ms
        yield f"{ratio:.2f}×", f"the speed of the default ({ms_text(default_ms)})"
    if history.roofline_ms and result.is_measured and not result.is_unsteady:
        share, _, rest = roofline_text(history.roofline_ms, result.ms).partition(" ")
        yield share, f"{rest} ({ms_text(history.roofline_ms)})"
    yield str(result.num_tried), f"configs tried, {result.num_recalled} known before"
    yield f"{result.seconds:.1f} s", f"of {result.budget_s:g} s: {result.stop.value}"


def _best_table(history: History) -> str:
    outcomes = sorted(_timed(history), key=lambda item: item[0])
    best = outcomes[:NUM_BEST]
    winner = history.result.config if history.result else None
    # A CPU has none of these.
    shown = [name for name in _RESOURCES if any(_resource_text(o, name) for _, _, o in best)]
    rows = [
        pages.row(
            _best_cells(place, timed, shown, history),
            "winner" if timed[2].config == winner else "",
        )
        for place, timed in enumerate(best, 1)
    ]
    heads = ["#", "time, ms", "spread", *(_RESOURCES[name] for name in shown), "build, s"]
    columns = [*heads, "found by", "config"]
    made = pages.table(columns, rows, range(len(heads)), "sortable")
    more = len(outcomes) - NUM_BEST
    rest = pages.note(f"and {counted(more, 'slower config')}") if more > 0 else ""
    words = "Times of the finals where a config was in them, else of its trial. "
    if any(outcome.is_disturbed for _, _, outcome in best):
        words += "Disturbed: others had the cores while a trial was timed. "
    return pages.note(words + "Click a config for its code.") + made + rest if rows else ""


def _timed(history: History) -> Iterable[Timed]:
    """Every config with one time: that of the finals where it was in them, as on the card."""
    finals = {s.config: s for s in history.final.standings} if history.final else {}
    seen: set[Config] = set()
    for outcome in (trial.outcome for trial in history.timed):
        standing = finals.get(outcome.config)
        if standing is None:
            yield outcome.time_ms, (outcome.high_ms - outcome.low_ms) / outcome.time_ms, outcome
        elif outcome.config not in seen:
            yield standing.median_ms, standing.spread, outcome
        seen.add(outcome.config)


def _best_cells(place: int, timed: Timed, resources: Sequence[str], history: History) -> list[str]:
    ms, spread, outcome = timed
    numbers = [
        str(place),
        number_text(ms),
        noise_text(spread) if spread < inf else "-",
        *(_resource_text(outcome, name) or "-" for name in resources),
        f"{outcome.build_s:.2f}",
    ]
    origin = "journal" if outcome.is_recalled else outcome.candidate.origin
    origin += "; disturbed" if outcome.is_disturbed else ""
    cells = [pages.cell(number, "number") for number in numbers]
    code = _code(history, outcome.config) if place <= NUM_CODES else ""
    parts = [pages.pre(text) for text in (repr(outcome.config), code) if text]
    shown = pages.unfold(config_text(outcome.config), *parts)
    return [*cells, pages.cell(origin, "origin"), f'<td class="config code">{shown}</td>']


def _code(history: History, config: Config) -> str:
    """The code of a config; nothing where it cannot be made here."""
    with suppress(BaseError):
        return history.start.code_of(config) if history.start else ""
    return ""


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
    verb = "differs" if len(changed) == 1 else "differ"
    words = f"{counted(len(changed), 'key')} {verb} from the default."
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
    """Remembers a search; writes ``<prefix>.html``, ``.svg`` and ``.predicted.svg``."""

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
    jobs: dict[str, Callable[[], str | None]] = {
        ".html": lambda: make_page(history),
        ".svg": lambda: draw_search(course_of(history)),
        ".predicted.svg": lambda: draw_predictions(predicted_pairs(history)),
    }
    written: list[Path] = []
    for suffix, make in jobs.items():
        path = with_suffix(prefix, suffix)
        try:
            content = make()
            if content is None:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if suffix == ".html" else standalone(content))
            written.append(path)
        except OSError as error:
            logging.getLogger(LOGGER_NAME).warning("%s is not written: %s", path, error)
    return written


def course_of(history: History) -> Course:
    """What the picture of a search is made of."""
    levels = (("default config", history.default_ms, "default"),
              ("roofline", history.roofline_ms, "roof"))  # fmt: skip
    return Course(
        search_title(history),
        [Tried(t.number, t.outcome.time_ms, config_text(t.outcome.config)) for t in history.timed],
        [Tried(t.number, inf, t.outcome.verdict.value) for t in history.failed],
        [(name, ms, style) for name, ms, style in levels if ms],
    )


def predicted_pairs(history: History) -> list[tuple[float, float]]:
    """(predicted, measured) of every trial that has both."""
    pairs = [(t.outcome.candidate.predicted_ms, t.outcome.time_ms) for t in history.timed]
    return [(predicted, measured) for predicted, measured in pairs if predicted and predicted < inf]


def search_title(history: History) -> str:
    """What was searched where, and what came of it."""
    start, result, roofline_ms = history.start, history.result, history.roofline_ms
    name = f"{start.kernel} on {start.device}" if start else "search"
    if result is None or not result.is_measured:
        return name
    is_told = roofline_ms and not result.is_unsteady
    share = f", {roofline_text(roofline_ms, result.ms)}" if roofline_ms and is_told else ""
    return f"{name}: {number_text(result.ms)} ms{share}"
