"""Lines under construction: indentation, wrapping, and comments with the user's own lines."""

from __future__ import annotations

import linecache
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tilesmith.diagnostics.location import SourceLocation

MAX_COLUMNS = 100
_INDENT = "    "
_CUT = "..."


class Header:
    """The line that a block begins with, for as long as nothing is inside."""

    def __init__(self, lines: list[str], indent: str) -> None:
        self._lines = lines
        self._indent = indent
        self._end = len(lines)

    def replace(self, text: str) -> bool:
        """Let the block begin with another line; False if it is not empty any more."""
        if len(self._lines) != self._end:
            return False
        self._lines[-1:] = _wrap(f"{self._indent}{text}", self._indent + 2 * _INDENT)
        self._end = len(self._lines)
        return True

    @property
    def is_alone(self) -> bool:
        """Whether the block is empty."""
        return len(self._lines) == self._end


class Lines:
    """Collects lines. Each line of the user's is quoted once, where it first has an effect."""

    def __init__(self, *, has_origins: bool = True) -> None:
        self._has_origins = has_origins
        self._lines: list[str] = []
        self._depth = 0
        self._quoted: set[tuple[str, int]] = set()
        self._last: tuple[str, int] | None = None

    def put(self, text: str, remark: str = "") -> None:
        """Append a statement, broken over lines when too long, and a remark."""
        indent = _INDENT * self._depth
        whole = f"{indent}{text}  # {remark}" if remark else f"{indent}{text}"
        if remark and len(whole) > MAX_COLUMNS:
            self._comment(remark)
            whole = f"{indent}{text}"
        self._lines.extend(_wrap(whole, indent + 2 * _INDENT))

    def remarks(self, parts: Sequence[str]) -> None:
        """Comments, as many on a line as there is room for."""
        line = ""
        for part in parts:
            if line and len(line) + len(part) + len("# ; ;") > MAX_COLUMNS:
                self._lines.append(f"# {line};")
                line = ""
            line = f"{line}; {part}" if line else part
        if line:
            self._lines.append(f"# {line}")

    @contextmanager
    def block(self, text: str, remark: str = "") -> Iterator[Header]:
        """``text:`` with what is written inside one level deeper."""
        self.put(f"{text}:", remark)
        header = Header(self._lines, _INDENT * self._depth)
        self._depth += 1
        yield header
        if header.is_alone:
            self.put("pass")
        self._depth -= 1

    def blank(self) -> None:
        """An empty line."""
        self._lines.append("")

    def quote(self, locations: Iterable[SourceLocation], *, is_new: bool = False) -> None:
        """The user's lines that the next statements are for.

        If all of them were quoted before, the last one is named, unless only new ones are wanted.
        """
        known = [loc for loc in locations if loc.line]
        if not known or not self._has_origins:
            return
        new = {(loc.file, loc.line): loc for loc in known}
        new = {key: loc for key, loc in new.items() if key not in self._quoted}
        files = list(dict.fromkeys(file for file, _ in new))
        for file, line in sorted(new, key=lambda key: (files.index(key[0]), key[1])):
            text = linecache.getline(file, line).strip()
            self._comment(f"{new[file, line]}  {text}".rstrip())
        last = known[-1].file, known[-1].line
        if not new and is_new:
            return
        if not new and last != self._last:
            self._comment(str(known[-1]))
        self._quoted.update(new)
        self._last = last

    def text(self) -> str:
        """Everything written so far."""
        return "\n".join(self._lines) + "\n"

    def _comment(self, text: str) -> None:
        line = f"{_INDENT * self._depth}# {text}"
        if len(line) > MAX_COLUMNS:
            line = line[: MAX_COLUMNS - len(_CUT)] + _CUT
        self._lines.append(line)


def _wrap(line: str, indent: str) -> list[str]:
    if len(line) <= MAX_COLUMNS:
        return [line]
    return textwrap.wrap(
        line,
        MAX_COLUMNS,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
