"""Bars in groups, from left to right on a logarithmic scale, beginning at 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from tilesmith.lab.drawing.chart import LETTER, framed
from tilesmith.lab.drawing.scale import MAX_MARKS, Scale

WIDTH, BAR, GAP = 900, 17, 12
WORDS = 190
"""Pixels behind the longest bar, for its words."""
MAX_LABEL = 300


@dataclass(frozen=True)
class Bar:
    """One thing in a group: a factor, or what is said instead."""

    name: str
    factor: float | None
    text: str


@dataclass(frozen=True)
class Group:
    """Bars that stand together under one label."""

    label: str
    bars: Sequence[Bar]


def draw_bars(
    groups: Sequence[Group], title: str, styles: Mapping[str, str], label: str
) -> str | None:
    """The picture; None where nothing has a factor. The legend has what has a bar."""
    bars = [bar for group in groups for bar in group.bars]
    factors = [bar.factor for bar in bars if bar.factor is not None]
    if not factors:
        return None
    longest = max(len(group.label) for group in groups if group.bars)
    left = min(MAX_LABEL, LETTER * longest + 14)
    scale = Scale(min(0.97, *factors), max(1.03, *factors), is_log=True)
    content: list[str] = []
    y = 6.0
    for group in (group for group in groups if group.bars):
        middle = y + BAR * len(group.bars) / 2 + 4
        shown = group.label if LETTER * len(group.label) <= MAX_LABEL else _shortened(group.label)
        content.append(
            f'<text x="{left - 10:.0f}" y="{middle:.1f}" text-anchor="end">{escape(shown)}'
            f"<title>{escape(group.label)}</title></text>"
        )
        for bar in group.bars:
            content.append(_bar(bar, y, left, scale, styles))
            y += BAR
        y += GAP
    height = round(y) + 38
    axis = _axis(scale, left, y, label)
    drawn = {bar.name for bar in bars if bar.factor is not None}
    legend = [(style, name, "square") for name, style in styles.items() if name in drawn]
    return framed(title, (WIDTH, height), legend, [*axis, *content])


def _shortened(text: str) -> str:
    return text[: int(MAX_LABEL / LETTER) - 1] + "…"


def _across(scale: Scale, left: float, value: float) -> float:
    return left + (WIDTH - left - WORDS) * scale.share(value)


def _bar(bar: Bar, y: float, left: float, scale: Scale, styles: Mapping[str, str]) -> str:
    value = bar.factor or 1.0
    start, end = sorted((_across(scale, left, 1.0), _across(scale, left, value)))
    style = styles[bar.name] if bar.factor is not None else "failure"
    drawn = (
        f'<g class="bars {style}"><title>{escape(f"{bar.name}: {bar.text}")}</title>'
        f'<rect x="{start:.1f}" y="{y + 1.5:.1f}" width="{max(1.0, end - start):.1f}" '
        f'height="{BAR - 3}"/>'
    )
    words = "words" if bar.factor is not None else "words failure"
    return (
        f'{drawn}<text class="{words}" x="{end + 6:.1f}" y="{y + BAR - 4.5:.1f}">'
        f"{escape(bar.text)}</text></g>"
    )


def _axis(scale: Scale, left: float, bottom: float, label: str) -> list[str]:
    made: list[str] = []
    for mark in marks_between(scale.low, scale.high):
        x = _across(scale, left, mark)
        style = "grid one" if mark == 1.0 else "grid"
        made.append(f'<line class="{style}" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{bottom:.0f}"/>')
        made.append(
            f'<text x="{x:.1f}" y="{bottom + 14:.0f}" text-anchor="middle">{mark:g}x</text>'
        )
    middle = (left + WIDTH - WORDS) / 2
    return [
        *made,
        f'<text x="{middle:.0f}" y="{bottom + 32:.0f}" text-anchor="middle">{escape(label)}</text>',
    ]


def marks_between(low: float, high: float) -> list[float]:
    """Round factors between two, few enough to be read; 1 is among them.

    Example:
        >>> marks_between(0.9, 1.35)
        [0.9, 1.0, 1.1, 1.2, 1.3]
    """
    decades = [10.0**power for power in range(-6, 7)]
    firsts = ((1, 2, 5), (1, 1.5, 2, 3, 5, 7))
    choices = [decades, *(sorted(a * b for a in first for b in decades) for first in firsts)]
    if high / low < 4:
        steps = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
        choices += [[round(n * step, 3) for n in range(1, int(high / step) + 1)] for step in steps]
    shown = [[mark for mark in marks if low <= mark <= high] for marks in choices]
    return max((marks for marks in shown if len(marks) <= MAX_MARKS), key=len)
