"""The scoreboard for people: one HTML page, a table in Markdown, and a few lines in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from tilesmith.bench.scoreboard.board import Board, Line, change_text
from tilesmith.bench.tables import DISTURBED, paste_text, plus_minus, speedup_text
from tilesmith.diagnostics.wording import counted, first_line, number_text, percent_text
from tilesmith.lab import pages

HELD_OUT = "°"
RATIO, LIMITER = 2, 8
COLUMNS = ("operator", "input", "against best", "noise", "ours, ms", "best rival", "its ms",
           "roofline", "limited by", "searched", "since last")  # fmt: skip
NUMBERS = (RATIO, 3, 4, 6, 7, 9)
"""Columns that hold numbers."""
BAR_PIXELS = 70
MEANING = (
    f"Times as fast as the best of all others, on the first call; {HELD_OUT} marks inputs that "
    "defaults are never fitted to. Roofline: the share of what the device model allows. Limited "
    "by: what the model says takes longest. Behind means beyond the noise of both times."
)
SHOWN = 12
"""Lines that a terminal gets."""


def make_page(board: Board, title: str) -> str:
    """All lines, the farthest behind first."""
    device = board.environment.get("device", "")
    heading = f"<h1>{escape(title)} on {escape(device)}</h1>\n{pages.note(MEANING)}"
    shown = shown_columns(board)
    rows = [pages.row(_cells(board, line, shown), _style(line)) for line in board.lines]
    names = [COLUMNS[place] for place in shown]
    numbers = [shown.index(place) for place in NUMBERS if place in shown]
    return pages.document(
        title,
        (
            f"<header>{heading}</header>",
            pages.figures(figures(board)),
            pages.section("Every row", pages.table(names, rows, numbers, "sortable")),
            pages.section("Predicted against measured order", _correlations(board)),
            pages.section("Environment", pages.facts_table(board.environment)),
        ),
    )


def shown_columns(board: Board) -> list[int]:
    """Those in which at least one line has something to say."""
    texts = [cell_texts(board, line) for line in board.lines]
    return [place for place in range(len(COLUMNS)) if any(line[place] for line in texts)]


def figures(board: Board) -> Iterator[tuple[str, str]]:
    """The numbers that count, with their meaning."""
    for name, (mean, count) in board.halves.items():
        if mean is not None:
            yield speedup_text(mean), f"of the best rival, {name}: geomean of {count}"
    yield str(len(board.behind)), f"behind beyond noise, of {counted(len(board.lines), 'row')}"
    yield str(sum(line.ratio is None for line in board.lines)), "without a comparison"
    disturbed = sum(line.is_disturbed for line in board.lines)
    if disturbed:
        yield str(disturbed), "disturbed by other work: shown, not in the means"
    refused = sum(line.is_refused_on_both_sides for line in board.lines)
    yield str(refused), "refused on both sides"
    gain, count = board.search_gain
    if gain is not None:
        yield speedup_text(gain), f"what a search gains, geomean of {count}"


def _cells(board: Board, line: Line, shown: Sequence[int]) -> list[str]:
    texts = cell_texts(board, line)
    cells = [_cell(line, place, texts[place]) for place in shown]
    reason = escape(first_line(line.problem, 200))
    told = f'<td class="failed" colspan="{len(shown) - 2}">{reason}</td>'
    return [*cells[:2], told] if line.problem else cells


def _cell(line: Line, place: int, text: str) -> str:
    if place == 0 and line.ours is not None and line.ours.config:
        return f"<td>{pages.unfold(text, pages.pre(paste_text(line.ours.config)))}</td>"
    if place == RATIO:
        return f'<td class="number">{escape(text)}{_bar(line)}</td>'
    return pages.cell(text, "number" if place in NUMBERS else "")


def cell_texts(board: Board, line: Line) -> list[str]:
    """What stands in a line, in the order of the columns."""
    ours, rival, first = line.ours, line.rival, line.first
    mark = HELD_OUT if line.is_held_out else ""
    name = first.operator
    if ours is not None and "_" in ours.implementation:
        name = f"{name} ({ours.implementation.partition('_')[2]})"
    share, ratio = line.roofline_share, line.ratio
    return [
        name,
        f"{first.input_label} {first.dtype}{mark}",
        speedup_text(ratio) if ratio is not None else "",
        "" if ratio is None else DISTURBED if line.is_disturbed else plus_minus(line.noise),
        number_text(ours.latency_ms) if ours and ours.latency_ms else "",
        rival.implementation if rival else "",
        number_text(rival.latency_ms) if rival and rival.latency_ms else "",
        percent_text(share) if share is not None else "",
        ours.limiter if ours else "",
        speedup_text(line.tuned_ratio) if line.tuned_ratio is not None else "",
        change_text(board.change_of(line)),
    ]


def _style(line: Line) -> str:
    return "ours" if line.is_behind or line.problem else ""


def _bar(line: Line) -> str:
    style = "bar" if line.is_behind else "bar good"
    width = BAR_PIXELS * min(line.ratio or 0.0, 2.0) / 2
    return f'<div class="{style}" style="width:{width:.0f}px"></div>'


def _correlations(board: Board) -> str:
    texts = {name or "other": f"{value:.2f}" for name, value in board.correlations.items()}
    words = "Rank correlation of the model's and the measured times of our defaults, by family."
    return pages.note(words) + pages.facts_table(texts) if texts else ""


def markdown_text(board: Board, title: str) -> str:
    """A section for docs: what it was measured with, the figures, every row."""
    known = board.environment
    names = ("device", "started", "torch", "triton", "python", "driver")
    facts = ", ".join(f"{name} {known[name]}" for name in names if known.get(name))
    lines = [f"## {title}", "", f"{facts}.", "", MEANING, ""]
    lines += [f"- {value} {words}" for value, words in figures(board)]
    found = ", ".join(f"{name or 'other'} {v:.2f}" for name, v in board.correlations.items())
    lines += [f"- rank correlation of predicted and measured times: {found}"] if found else []
    shown = shown_columns(board)
    rules = ["---:" if place in NUMBERS else "---" for place in shown]
    lines += ["", _markdown_row([COLUMNS[place] for place in shown]), _markdown_row(rules)]
    for line in board.lines:
        texts = cell_texts(board, line)
        texts[LIMITER] = first_line(line.problem, 120) or texts[LIMITER]
        lines.append(_markdown_row([texts[place].replace("|", "/") for place in shown]))
    return "\n".join(lines) + "\n"


def _markdown_row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def terminal_lines(board: Board) -> Iterator[str]:
    """The figures, and the lines that are farthest behind."""
    for value, words in figures(board):
        yield f"{value} {words}"
    behind = [line for line in board.lines if line.is_behind or line.problem]
    for line in behind[:SHOWN]:
        name, label, ratio, noise, _, rival, *_ = cell_texts(board, line)
        told = first_line(line.problem, 100) or f"{ratio} {noise} of {rival}"
        yield f"  {name} {label}: {told}"
    if len(behind) > SHOWN:
        yield f"  and {counted(len(behind) - SHOWN, 'more row')}"
