"""Reads a page of a report: its text and attributes; whether it stands alone."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from typing_extensions import override

VOID = ("meta", "br", "input")


class Reader(HTMLParser):
    """Collects text and attributes; unbalanced tags are an error."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    @override
    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    @override
    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    @override
    def handle_data(self, data):
        if self.open and data.strip():
            self.texts.setdefault(self.open[-1], []).append(data.strip())

    @property
    def headings(self) -> list[str]:
        return self.texts["h2"]

    @property
    def all_text(self) -> str:
        shown = {tag: texts for tag, texts in self.texts.items() if tag not in ("style", "script")}
        return "\n".join(text for texts in shown.values() for text in texts)


def assert_nothing_is_fetched(page: str) -> None:
    """No address in it leads out of it, and nothing in it runs."""
    for tag, name, value in Reader(page).attributes:
        if name in ("src", "href", "srcset", "action", "data"):
            assert value.startswith("#"), (tag, name)
    assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttp|import\(", page)
    # The one script that sorts and filters tables.
    assert page.count("<script") == page.count("<script>") == 1
