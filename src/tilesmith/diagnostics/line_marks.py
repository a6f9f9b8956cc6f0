"""Marks under a part of a line, as wide as terminals show it."""

from __future__ import annotations

import unicodedata

TAB_WIDTH = 4
CONTINUES = "…"
Columns = tuple[int, "int | None"]
"""First column and one past the last, in bytes; None: it goes on in later lines."""


def _character_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _display_width(text: str) -> int:
    return sum(map(_character_width, text))


def marker(text: str, columns: Columns | None, mark: str) -> str:
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
