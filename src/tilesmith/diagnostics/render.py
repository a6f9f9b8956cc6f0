"""Places as text: the user's source line, with a marker under the offending expression."""

from __future__ import annotations

import linecache
import unicodedata
from collections.abc import Mapping

from tilesmith.diagnostics.location import Columns, SourceLocation

TAB_WIDTH = 4
MIN_GUTTER = 3
CONTINUES = "…"


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


def _places(
    loc: SourceLocation, related: Mapping[str, SourceLocation]
) -> list[tuple[str, str, SourceLocation]]:
    """Heading, mark and place: the place itself, its callers, then the related places."""
    places = [(f"--> {loc}{_in_function(loc)}", "^", loc)]
    callee, caller = loc, loc.caller
    while caller is not None:
        # A recursion shows once.
        if caller != callee:
            places.append((f"called from {caller}{_in_function(caller)}", "-", caller))
        callee, caller = caller, caller.caller
    return places + [(f"{label}: {place}", "-", place) for label, place in related.items()]


def _in_function(place: SourceLocation) -> str:
    return f", in {place.function}" if place.function.isidentifier() else ""


def _snippet(place: SourceLocation, mark: str, gutter: int) -> list[str]:
    text = linecache.getline(place.file, place.line).rstrip("\r\n")
    if not text.strip():
        return []
    margin = " " * gutter
    return [
        f"{margin} |",
        f"{place.line:>{gutter}} | {text.expandtabs(TAB_WIDTH)}",
        f"{margin} | {_marker(text, place.columns, mark)}",
    ]


def _location_lines(places: list[tuple[str, str, SourceLocation]], gutter: int) -> list[str]:
    lines: list[str] = []
    for heading, mark, place in places:
        lines.append(f"{' ' * (gutter - 1)}{heading}")
        lines.extend(_snippet(place, mark, gutter))
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
    gutter = max([MIN_GUTTER, *(len(str(place.line)) for _, _, place in places)])
    lines = [message, *_location_lines(places, gutter)]
    for label, text in parts.items():
        if text:
            lines.extend(_part_lines(label, text, gutter))
    return "\n".join(lines)
