"""One HTML page about a search: self-contained, no request leaves it, everything is escaped."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from math import inf

from tilesmith.diagnostics.wording import counted, first_line, ms_text, number_text, percent_text
from tilesmith.lab.pages import (
    Theme,
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
from tilesmith.tune.listener import History
from tilesmith.tune.report.log import roofline_text
from tilesmith.tune.report.picture import draw_predictions, draw_search
from tilesmith.tune.result import TuneResult, rejections

NUM_BEST = 20
Draw = Callable[[History, Theme], "bytes | None"]
PACKAGES = ("tilesmith", "torch", "triton", "llvmlite", "numpy")


def make_page(history: History) -> str:
    """The page, from what a search told."""
    kernel = history.start.kernel if history.start else "kernel"
    return document(
        f"Tuning {kernel}",
        (
            _heading(history),
            _result(history),
            section("The search", _picture(history, draw_search, "times of the configs tried")),
            section("Best configs", _best_table(history)),
            section("Side by side", _finals(history)),
            section("The winner in full", _winner(history)),
            section("Rejected", _failures(history)),
            section("Prediction", _predictions(history)),
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


def _picture(history: History, draw: Draw, meaning: str, style: str = "") -> str:
    return picture(lambda theme: draw(history, theme), meaning, style)


def _best_table(history: History) -> str:
    outcomes = sorted((t.outcome for t in history.timed), key=lambda outcome: outcome.time_ms)
    best = outcomes[:NUM_BEST]
    winner = history.result.config if history.result else None
    shown = [name for name, text_of in _RESOURCES.items() if any(map(text_of, best))]
    rows = [
        row(_best_cells(place, outcome, shown), "winner" if outcome.config == winner else "")
        for place, outcome in enumerate(best, 1)
    ]
    heads = ["#", "time, ms", "spread", *shown, "build, s"]
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
        *(number_cell(_RESOURCES[name](outcome) or "-") for name in resources),
        number_cell(f"{outcome.build_s:.2f}"),
        text_cell(origin),
        _config_cell(outcome.config),
    ]


def _shared_text(outcome: Outcome) -> str:
    use = outcome.resources.shared_bytes
    return "" if use is None else f"{use / 1024:.4g}"


def _count_text(count: int | None) -> str:
    return "" if count is None else str(count)


_RESOURCES: Mapping[str, Callable[[Outcome], str]] = {
    "shared, KiB": _shared_text,
    "registers": lambda outcome: _count_text(outcome.resources.registers),
    "spills": lambda outcome: _count_text(outcome.resources.spills),
}
"""Columns that are there where some config has a value: a CPU has none of these."""


def _finals(history: History) -> str:
    final = history.final
    if final is None:
        return ""
    rows = [
        row(
            [
                number_cell(number_text(standing.median_ms)),
                number_cell(percent_text(standing.spread)),
                text_cell("tied" if standing.is_tied else "slower"),
                _config_cell(standing.config),
            ],
            "winner" if standing == final.winner else "",
        )
        for standing in final.standings
    ]
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
    names = [*result.config, *(name for name in changed if name not in result.config)]
    rows = [
        row(
            [
                code_cell(name),
                _code_cell(result.config.get(name)),
                _code_cell(default.get(name) if default is not None else None),
            ],
            "changed" if name in changed else "",
        )
        for name in names
    ]
    shown = table(head(["key", "winner", "default"]), rows, "facts")
    return note(_difference_note(default, changed)) + shown


def _difference_note(default: Config | None, changed: Sequence[str] | dict[str, object]) -> str:
    if default is None:
        return "The default config is not known."
    if not changed:
        return "The winner is the default config."
    return f"{counted(len(changed), 'key')} differ from the default."


def _failures(history: History) -> str:
    groups = rejections(trial.outcome for trial in history.trials)
    most = max((len(group) for group in groups.values()), default=0)
    rows = [
        row(
            [
                text_cell(verdict.value),
                number_cell(str(len(group))),
                f'<td><div class="bar" style="width:{160 * len(group) / most:.0f}px"></div></td>',
                f'<td class="config">{escape(first_line(group[0].reason, 400))}'
                f"<br><code>{escape(config_text(group[0].config))}</code></td>",
            ]
        )
        for verdict, group in groups.items()
    ]
    return table(head(["why", "configs", "", "one of them"], range(1, 2)), rows) if rows else ""


def _predictions(history: History) -> str:
    return _picture(history, draw_predictions, "predicted and measured times", "narrow")


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
    return facts_table({**values, **describe_environment()})


def _code_cell(value: object) -> str:
    return code_cell("-" if value is None else repr(value))


def _config_cell(config: Config) -> str:
    return code_cell(config_text(config), "config")


def describe_environment() -> dict[str, str]:
    """Names and versions; packages that are not installed are left out."""
    system = f"{platform.system()} on {platform.machine()}"
    python = {"Python": platform.python_version(), "system": system}
    return installed_versions(PACKAGES) | python
