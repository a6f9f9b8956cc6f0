"""One HTML page about a search: self-contained, no request leaves it, everything is escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from html import escape
from math import inf

from tilesmith.schedule.config import Config
from tilesmith.tune.outcome import Outcome
from tilesmith.tune.report.environment import describe_environment
from tilesmith.tune.report.history import History
from tilesmith.tune.report.page_style import STYLE
from tilesmith.tune.report.picture import (
    DARK,
    LIGHT,
    PictureError,
    Theme,
    draw_predictions,
    draw_search,
)
from tilesmith.tune.report.wording import (
    config_text,
    counted,
    differences,
    first_line,
    ms_text,
    number_text,
    percent_text,
    rejections,
    roofline_text,
)
from tilesmith.tune.result import TuneResult

NUM_BEST = 20
Draw = Callable[[History, Theme], "bytes | None"]


def make_page(history: History) -> str:
    """The page, from what a search told."""
    kernel = escape(history.start.kernel if history.start else "kernel")
    sections = (
        _heading(history),
        _result(history),
        _section("The search", _picture(history, draw_search, "times of the configs tried")),
        _section("Best configs", _best_table(history)),
        _section("Side by side", _finals(history)),
        _section("The winner in full", _winner(history)),
        _section("Rejected", _failures(history)),
        _section("Prediction", _predictions(history)),
        _section("How it was done", _method(history)),
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Tuning {kernel}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(filter(None, sections))
        + "\n</body>\n</html>\n"
    )


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>" if content else ""


def _heading(history: History) -> str:
    start = history.start
    if start is None:
        return "<h1>Tuning</h1>"
    where = f"on {start.device or start.target}"
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
    cards = "".join(
        f'<div class="figure"><b>{escape(value)}</b><span>{escape(what)}</span></div>'
        for value, what in _figures(history, result)
    )
    return (
        f'{shown}<div class="figures">{cards}</div>\n'
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
    """The picture in both themes, inside the page."""
    try:
        light, dark = draw(history, LIGHT), draw(history, DARK)
    except PictureError as error:
        return f'<p class="soft">No picture: {escape(str(error))}.</p>'
    if light is None or dark is None:
        return ""
    source = f'<source srcset="{_data(dark)}" media="(prefers-color-scheme: dark)">'
    image = f'<img class="{style}" src="{_data(light)}" alt="{escape(meaning)}">'
    return f"<picture>{source}{image}</picture>"


def _data(png: bytes) -> str:
    return "data:image/png;base64," + b64encode(png).decode()


def _best_table(history: History) -> str:
    outcomes = sorted((t.outcome for t in history.timed), key=lambda outcome: outcome.time_ms)
    winner = history.result.config if history.result else None
    rows = [
        _row(_best_cells(place, outcome), "winner" if outcome.config == winner else "")
        for place, outcome in enumerate(outcomes[:NUM_BEST], 1)
    ]
    heads = ("#", "time, ms", "spread", "shared, KiB", "registers", "spills", "build, s")
    shown = _table(_head([*heads, "found by", "config"], len(heads)), rows)
    more = len(outcomes) - NUM_BEST
    note = f'<p class="soft">and {counted(more, "slower config")}</p>' if more > 0 else ""
    return shown + note if rows else ""


def _best_cells(place: int, outcome: Outcome) -> list[str]:
    use = outcome.resources
    shared = None if use.shared_bytes is None else use.shared_bytes / 1024
    spread = (outcome.high_ms - outcome.low_ms) / outcome.time_ms
    origin = "journal" if outcome.is_recalled else outcome.candidate.origin
    return [
        _number(str(place)),
        _number(number_text(outcome.time_ms)),
        _number(percent_text(spread) if spread < inf else "-"),
        _number("-" if shared is None else f"{shared:.4g}"),
        _number("-" if use.registers is None else str(use.registers)),
        _number("-" if use.spills is None else str(use.spills)),
        _number(f"{outcome.build_s:.2f}"),
        f"<td>{escape(origin)}</td>",
        _config_cell(outcome.config),
    ]


def _finals(history: History) -> str:
    final = history.final
    if final is None:
        return ""
    rows = [
        _row(
            [
                _number(number_text(standing.median_ms)),
                _number(percent_text(standing.spread)),
                f"<td>{'tied' if standing.is_tied else 'slower'}</td>",
                _config_cell(standing.config),
            ],
            "winner" if standing == final.winner else "",
        )
        for standing in final.standings
    ]
    note = (
        f"The best {len(rows)} measured in turns. The fastest measured twice differed by "
        f"{percent_text(final.noise)} from itself. Of those that tie, the default wins, or else "
        "the simplest."
    )
    table = _table(_head(["time, ms", "spread", "", "config"], 2), rows)
    return f'<p class="soft">{escape(note)}</p>\n{table}'


def _winner(history: History) -> str:
    result = history.result
    if result is None:
        return ""
    default = history.default
    changed = differences(result.config, default)
    names = [*result.config, *(name for name in changed if name not in result.config)]
    rows = [
        _row(
            [
                f"<td><code>{escape(name)}</code></td>",
                _code_cell(result.config.get(name)),
                _code_cell(default.get(name) if default is not None else None),
            ],
            "changed" if name in changed else "",
        )
        for name in names
    ]
    note = _difference_note(default, changed)
    return f'<p class="soft">{note}</p>\n' + _table(_head(["key", "winner", "default"], 0), rows)


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
        _row(
            [
                f"<td>{escape(verdict.value)}</td>",
                _number(str(len(group))),
                f'<td><div class="bar" style="width:{160 * len(group) / most:.0f}px"></div></td>',
                f'<td class="config">{escape(first_line(group[0].reason, 400))}'
                f"<br><code>{escape(config_text(group[0].config))}</code></td>",
            ]
        )
        for verdict, group in groups.items()
    ]
    head = _head(["why", "configs", "", "one of them"], 0)
    return _table(head, rows) if rows else ""


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
    values.update(describe_environment())
    rows = [
        _row([f"<td>{escape(name)}</td>", f"<td>{escape(value)}</td>"])
        for name, value in values.items()
        if value
    ]
    return _table("", rows)


def _table(head: str, rows: Sequence[str]) -> str:
    return f'<div class="wide"><table>{head}\n' + "\n".join(rows) + "\n</table></div>"


def _head(names: Sequence[str], num_numbers: int) -> str:
    """The header row; the first few columns hold numbers."""
    cells = [
        f'<th class="number">{escape(name)}</th>'
        if place < num_numbers
        else f"<th>{escape(name)}</th>"
        for place, name in enumerate(names)
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _row(cells: Iterable[str], style: str = "") -> str:
    return f'<tr class="{style}">{"".join(cells)}</tr>' if style else f"<tr>{''.join(cells)}</tr>"


def _number(text: str) -> str:
    return f'<td class="number">{escape(text)}</td>'


def _code_cell(value: object) -> str:
    return f"<td><code>{escape('-' if value is None else repr(value))}</code></td>"


def _config_cell(config: Config) -> str:
    return f'<td class="config"><code>{escape(config_text(config))}</code></td>'
