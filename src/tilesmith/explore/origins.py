"""Which of the user's lines every line of generated text comes from.

The source column holds the kernel and every function of the user that it calls. A place is a set of
its lines: that of an op and those of its callers. IR has locations, emitted code has comments, and
machine code has the lines of the emitted code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilesmith.diagnostics.location import SourceLocation
from tilesmith.ir.function import Function
from tilesmith.ir.printer import print_function
from tilesmith.ir.traversal import walk_function

NOWHERE = -1
_COMMENT = re.compile(r"^\s*# (?:src\[)?([^\s\[\]]+\.\w+:\d+)\]?(?:\s|$)")
_LOC_PLACE = re.compile(r"([^\s\[\]]+):(\d+):\d+")
_SASS_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
_SASS_CODE = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+")
_MODULE = re.compile(r"_[0-9a-f]{16}\.py$")
"""Files of emitted modules: their names end with a digest."""
_LABEL = re.compile(r"^(\$L__|\.L)(tmp|func_|info)|^; %bb")


@dataclass(frozen=True)
class Column:
    """Text with what its lines come from."""

    lines: Sequence[str]
    places: Sequence[int]
    """Of every line its number in the table of places."""
    emitted: Sequence[int] = ()
    """Of machine code: of every line the emitted line that it comes from, counted from 0."""

    def to_json(self) -> dict[str, Any]:
        """As the page reads it."""
        found = {"text": "\n".join(self.lines), "places": list(self.places)}
        return {**found, "emitted": list(self.emitted)} if self.emitted else found


@dataclass
class Source:
    """The source column, and the table of places that grows while columns are made."""

    lines: list[str] = field(default_factory=list[str])
    labels: list[str] = field(default_factory=list[str])
    """Of every line ``file:number``."""
    places: list[list[int]] = field(default_factory=list[list[int]])
    _rows: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    _numbers: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    _named: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    """Rows by what comments call them: the file without its folder, and the line."""

    @classmethod
    def of(cls, function: Any, traced: Function) -> Source:
        """The user's functions that a trace went through, the kernel first."""
        source = cls()
        source.add(function.__code__)
        for loc in (chained for op in walk_function(traced) for chained in chain(op.loc)):
            if loc.code is not None and (loc.file, loc.line) not in source._rows:
                source.add(loc.code)
        for op in walk_function(traced):
            source._named.setdefault(str(op.loc), set()).update(source.rows(op.loc))
        return source

    def add(self, code: Any) -> None:
        """A function, with a line of space above; what cannot be read is left out."""
        try:
            lines, first = inspect.getsourcelines(code)
        except (OSError, TypeError):
            return
        if self.lines:
            self.lines.append("")
            self.labels.append("")
        for number, line in enumerate(lines, max(first, 1)):
            self._rows.setdefault((code.co_filename, number), len(self.lines))
            self.lines.append(line.rstrip("\n"))
            self.labels.append(f"{Path(code.co_filename).name}:{number}")

    def rows(self, loc: SourceLocation) -> set[int]:
        """The rows of a location and its callers."""
        keys = ((item.file, item.line) for item in chain(loc))
        return {self._rows[key] for key in keys if key in self._rows}

    def place(self, rows: Iterable[int]) -> int:
        """The number of a set of rows in the table."""
        key = tuple(sorted(rows))
        if not key:
            return NOWHERE
        if key not in self._numbers:
            self._numbers[key] = len(self.places)
            self.places.append(list(key))
        return self._numbers[key]

    def named(self, name: str) -> int:
        """The place that a comment names as ``file:line``."""
        file, _, line = name.rpartition(":")
        rows = self._named.get(name)
        if rows is None:
            own = (row for (path, n), row in self._rows.items() if n == int(line) and
                   Path(path).name == file)  # fmt: skip
            rows = self._named[name] = set(own)
        return self.place(rows)

    def own_column(self) -> Column:
        """The user's lines themselves."""
        return Column(self.lines, [self.place([row]) for row in range(len(self.lines))])


def chain(loc: SourceLocation) -> Iterator[SourceLocation]:
    """A location, its caller, and so on."""
    current: SourceLocation | None = loc
    while current is not None:
        yield current
        current = current.caller


def column_of_ir(function: Function, source: Source) -> Column:
    """Printed IR: after the declarations one line for each op, in the order of a walk."""
    shown = print_function(function).rstrip("\n").split("\n")
    ops = walk_function(function)
    num_declared = 1 + sum(
        map(len, (function.parameters, function.blocks, function.sizes, function.tunables))
    )
    places: list[int] = []
    for number, line in enumerate(shown):
        is_op = number >= num_declared and not line.lstrip().startswith("}")
        op = next(ops, None) if is_op else None
        places.append(NOWHERE if op is None else source.place(source.rows(op.loc)))
    return Column([line.partition("  // ")[0] for line in shown], places)


def column_of_code(text: str, source: Source) -> Column:
    """Emitted code: lines belong to the comment above them, up to the next or the margin."""
    lines = text.rstrip("\n").split("\n")
    places: list[int] = []
    current = NOWHERE
    for line in lines:
        found = _COMMENT.match(line)
        if found:
            current = source.named(found.group(1))
        elif line and not line[0].isspace() and not line.startswith(("#", "parallel", "for", ")")):
            current = NOWHERE
        places.append(current if line.strip() else NOWHERE)
    return Column(lines, places)


def column_of_ptx(text: str, emitted: Column) -> Column:
    """PTX without debug sections; ``.loc`` says which line of the module comes next."""
    end = re.search(r"^\s*\.(section\t\.debug|file)", text, re.MULTILINE)
    return _column_of_gpu(text[: end.start()] if end else text, emitted)


def column_of_amdgcn(text: str, emitted: Column) -> Column:
    """Instructions of an AMD GPU, without the sections that describe them."""
    code = text.partition("\t.section\t.rodata")[0]
    return _column_of_gpu(re.sub(r"^\t\.(cfi|file|p2align).*\n", "", code, flags=re.M), emitted)


def _column_of_gpu(text: str, emitted: Column) -> Column:
    """The comment of a ``.loc`` names a line of the module and what that was inlined into."""
    lines: list[str] = []
    rows: list[int] = []
    row = NOWHERE
    for line in text.split("\n"):
        if line.lstrip().startswith(".loc"):
            row = _row_of(_LOC_PLACE.findall(line), emitted)
        elif not _LABEL.match(line) and line.strip() not in ("", "//"):
            lines.append(line.replace("\t", "  ").rstrip())
            rows.append(row if line.startswith("\t") else NOWHERE)
    return _machine_column(lines, rows, emitted)


def _row_of(places: Iterable[tuple[str, str]], emitted: Column) -> int:
    """The innermost of the places, each in the caller of the one before, that is in the module.

    Others are Triton's own functions; helpers of the module say nothing where their caller does.
    """
    rows = [int(line) - 1 for file, line in places if _MODULE.search(file)]
    known = [row for row in rows if 0 <= row < len(emitted.lines)]
    told = [row for row in known if emitted.places[row] != NOWHERE]
    return next(iter([*told, *known]), NOWHERE)


def column_of_sass(text: str, emitted: Column) -> Column:
    """SASS as nvdisasm prints it with the lines of the module."""
    lines: list[str] = []
    rows: list[int] = []
    places: list[tuple[str, str]] = []
    is_open = True
    for line in text.split("\n"):
        if line.lstrip().startswith("//##"):
            # Callers of an inlined line follow it.
            places = [] if is_open else places
            places += _SASS_PLACE.findall(line)
            is_open = False
        elif _SASS_CODE.match(line):
            is_open = True
            lines.append("  " + _SASS_CODE.sub("", line).rstrip())
            rows.append(_row_of(places, emitted))
        elif line.startswith(".L_x"):
            lines.append(line)
            rows.append(NOWHERE)
    return _machine_column(lines, rows, emitted)


def column_of_assembly(text: str, marks: Sequence[int]) -> Column:
    """Assembly without debug sections; line N + 1 of a ``.loc`` is the place of mark N."""
    lines: list[str] = []
    places: list[int] = []
    place = NOWHERE
    for line in text.split("\n"):
        words = line.split()
        if words[:1] == [".section"] and words[1].startswith(".debug"):
            break
        if words[:1] == [".loc"]:
            number = int(words[2])
            place = marks[number - 1] if number else NOWHERE
        elif words and not words[0].startswith((".file", ".Ltmp", ".Lfunc")):
            lines.append(line.replace("\t", "  "))
            places.append(place if line.startswith("\t") and words[0][0] != "." else NOWHERE)
    return Column(lines, places)


def _machine_column(lines: list[str], rows: list[int], emitted: Column) -> Column:
    places = [NOWHERE if row == NOWHERE else emitted.places[row] for row in rows]
    return Column(lines, places, rows)
