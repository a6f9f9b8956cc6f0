"""The pages of wrong uses: each section has a title, a program or a command, and what is said."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "wrong_uses"
SECTION = re.compile(
    r"^## (?P<title>[^\n]+)\n\n(?P<words>.*?)"
    r"^```(?P<kind>python|console)\n(?P<code>.*?)^```\n"
    r"(?:\n```text\n(?P<text>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
CLASSES_SHOWN = re.compile(r"(?:tilesmith\.exc\.|WARNING\[)(\w+)")
"""Classes of errors and warnings in a text."""


@dataclass(frozen=True)
class Use:
    """One wrong use. ``kind`` is "python" for a program, "console" for a line of a shell."""

    page: str
    title: str
    words: str
    kind: str
    code: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}-{re.sub(r'[^a-z0-9]+', '_', self.title.lower()).strip('_')}"

    def __str__(self) -> str:
        shown = f"\n```text\n{self.text}```\n" if self.text else ""
        return f"## {self.title}\n\n{self.words}```{self.kind}\n{self.code}```\n{shown}"


def uses_of(page: Path) -> list[Use]:
    """All wrong uses of a page, in its order."""
    text = page.read_text(encoding="utf-8")
    found = [Use(page.stem, **match.groupdict(default="")) for match in SECTION.finditer(text)]
    titles = len(re.findall(r"^## ", text, re.MULTILINE))
    assert len(found) == titles, f"{page.name}: {titles} titles, {len(found)} programs"
    return found


def all_uses() -> list[Use]:
    """All wrong uses of all pages."""
    return [use for page in sorted(FOLDER.glob("*.md")) for use in uses_of(page)]


def with_texts(page: Path, texts: dict[str, str]) -> str:
    """The page with what its uses say now, by their names."""
    begin = page.read_text(encoding="utf-8").partition("\n## ")[0]
    sections = [str(replace(use, text=texts[use.name])) for use in uses_of(page)]
    return "\n".join([begin.rstrip("\n") + "\n", *sections])
