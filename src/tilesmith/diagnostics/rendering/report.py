"""The text of an error: its message, places with their lines of source, then labelled parts.

A marker stands under the offending expression. A report has at most a dozen lines: of a long chain
of calls only the ends are shown, and lines to breathe only where there are few places.
"""

from __future__ import annotations

import linecache
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from tilesmith.diagnostics.location import Columns, SourceLocation

TAB_WIDTH = 4
MIN_GUTTER = 3
CONTINUES = "…"
MAX_CALLERS, MAX_AIRY = 3, 2
"""How many callers are named, and with how many places a report has room for empty lines."""


def _character_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _display_width(text: str) -> int:
    return sum(map(_character_width, text))


def _marker(text: str, columns: Columns | None, mark: str) -> str:
    """The line of marks under ``columns`` of ``text``; without columns, under the whole of it."""
    raw = text.rstrip().encode()
    start, end = columns or (0, len(raw))
    if start >= len(raw):
        start, end = 0, len(raw)
    head = raw[:start].decode(errors="ignore")
    if not head.strip():
        head = text[: len(text) - len(text.lstrip())]
    covered = raw[: len(raw) if end is None else end].decode(errors="ignore")
    # A statement with a block goes on too, but what is meant is its header.
    is_header = end is None and covered.endswith(":")
    indent = _display_width(head.expandtabs(TAB_WIDTH))
    width = _display_width(covered.expandtabs(TAB_WIDTH)) - indent - is_header
    return (
        " " * indent + mark * max(1, width) + (CONTINUES if end is None and not is_header else "")
    )


class _Place(NamedTuple):
    heading: str
    mark: str
    loc: SourceLocation
    has_source: bool = True


def _places(loc: SourceLocation, related: Mapping[str, SourceLocation]) -> list[_Place]:
    """The place itself, its callers, then the related places; most have their line of source."""
    callers: list[SourceLocation] = []
    callee, caller = loc, loc.caller
    while caller is not None:
        # A recursion shows once.
        if caller != callee:
            callers.append(caller)
        callee, caller = caller, caller.caller
    shown = callers if len(callers) <= MAX_CALLERS else [*callers[: MAX_CALLERS - 1], callers[-1]]
    return [
        _Place(f"--> {loc.link}{_in_function(loc)}", "^", loc),
        # Of a chain of calls, the lines that matter are its ends.
        *(
            _Place(f"called from {c.link}{_in_function(c)}", "-", c, c is shown[-1] and not related)
            for c in shown
        ),
        *(_Place(f"{label}: {p.link}", "-", p, not callers) for label, p in related.items()),
    ]


def _in_function(place: SourceLocation) -> str:
    return f", in {place.function}" if place.function.isidentifier() else ""


def _snippet(place: _Place, gutter: int) -> list[str]:
    loc = place.loc
    text = linecache.getline(loc.file, loc.line).rstrip("\r\n") if place.has_source else ""
    if not text.strip():
        return []
    return [
        f"{loc.line:>{gutter}} | {text.expandtabs(TAB_WIDTH)}",
        f"{' ' * gutter} | {_marker(text, loc.columns, place.mark)}",
    ]


def _location_lines(places: list[_Place], gutter: int) -> list[str]:
    lines: list[str] = []
    for place in places:
        source = _snippet(place, gutter)
        # A line to breathe, where the report is short.
        air = [f"{' ' * gutter} |"] if source and len(places) <= MAX_AIRY else []
        lines += [f"{' ' * (gutter - 1)}{place.heading}", *air, *source]
    return lines


def _part_lines(label: str, text: str, gutter: int) -> list[str]:
    head = f"{' ' * gutter} = {label}: "
    first, *rest = text.splitlines() or [""]
    return [head + first, *(" " * len(head) + line for line in rest)]


def render_report(
    message: str,
    parts: Mapping[str, str],
    loc: SourceLocation | None = None,
    related: Mapping[str, SourceLocation] | None = None,
) -> str:
    """The message, the places with their source lines, then the labelled parts that have a text."""
    places = _places(loc, related or {}) if loc is not None and loc.line else []
    gutter = max([MIN_GUTTER, *(len(str(place.loc.line)) for place in places)])
    lines = [message, *_location_lines(places, gutter)]
    for label, text in parts.items():
        if text:
            lines.extend(_part_lines(label, text, gutter))
    return "\n".join(lines)
