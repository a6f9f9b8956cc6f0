"""Tutorial pages as notebooks, and the code of a page, to be run in tests.

A page is the source: its Python blocks, in order, are one program. A block of kind ``text`` below
one shows what it prints; a block that begins with ``# not run`` is shown only.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tilesmith.puzzles.puzzle import notebook
from tools.site.pages import DOCS

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"^!\[([^\]]*)\]\([^)]*\)$", re.MULTILINE)
NOT_RUN = "# not run"


class Block(NamedTuple):
    """A block of code with its language and the line where it begins."""

    language: str
    text: str
    line: int

    @property
    def is_run(self) -> bool:
        """Whether it is part of the program of its page."""
        return self.language == "python" and not self.text.startswith(NOT_RUN)


def blocks_of(text: str) -> list[Block]:
    """All blocks of a page."""
    return [
        Block(match[1], match[2], text.count("\n", 0, match.start()) + 2)
        for match in BLOCK.finditer(text)
    ]


def tutorials() -> list[Path]:
    """The pages of the tutorial, in order."""
    return sorted(path for path in (DOCS / "tutorial").glob("*.md") if path.stem != "index")


def notebook_of(text: str) -> str:
    """A page as a notebook: prose, and a cell for each Python block."""
    cells: list[tuple[str, str]] = []
    place = 0
    for match in BLOCK.finditer(text):
        _add_prose(cells, text[place : match.start()])
        is_code = Block(match[1], match[2], 0).is_run
        if is_code:
            cells.append(("code", match[2]))
        elif match[1] != "text" or not cells or cells[-1][0] != "code":
            _add_prose(cells, match[0])
        place = match.end()
    _add_prose(cells, text[place:])
    return notebook(cells)


def _add_prose(cells: list[tuple[str, str]], text: str) -> None:
    # Pictures and links lead to pages of the site, which a notebook does not have beside it.
    text = re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", PICTURE.sub("", text)).strip()
    if text:
        cells.append(("markdown", text))
