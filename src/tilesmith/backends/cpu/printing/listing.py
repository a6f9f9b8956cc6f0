"""Text under construction: expressions, lines and names, what stands for each scalar, lengths."""

from __future__ import annotations

import keyword
import linecache
import math
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from tilesmith.backends.cpu.loop_ir import elements as ir
from tilesmith.backends.cpu.loop_ir.statements import Kernel
from tilesmith.backends.source_writer import OPERATORS, Precedence
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.dtypes import DTYPES_BY_NAME, F64, DType
from tilesmith.ir.ops.elementwise import INFIX, SCALAR_FUNCTIONS
from tilesmith.ir.types import Dim

_PREFIXES = {"neg": "-", "not": "~"}
_NAMES = {"maximum": "max", "minimum": "min"}
_CALLED = SCALAR_FUNCTIONS.keys() - {*INFIX, *_PREFIXES}
FUNCTIONS = frozenset(_NAMES.get(name, name) for name in _CALLED)
"""What is written as a call, so that no variable may have these names."""


@dataclass(frozen=True)
class Expr:
    """One expression; ``strength`` says how tightly its outermost operator binds."""

    text: str
    strength: int = Precedence.ATOM
    constant: int | float | bool | None = None

    def __str__(self) -> str:
        return self.text

    def at(self, strength: int) -> str:
        """The text, in parentheses unless it binds at least that tightly."""
        return self.text if self.strength >= strength else f"({self.text})"


def number(value: float, dtype: DType | None = None) -> Expr:
    """A constant, with no more digits than its type can tell apart."""
    text = repr(value)
    if isinstance(value, float) and math.isfinite(value) and dtype != F64:
        text = f"{value:.9g}"
        text = text if {".", "e"} & set(text) else f"{text}.0"
    return Expr(text, Precedence.UNARY if text.startswith("-") else Precedence.ATOM, value)


def function(fn: str, args: list[Expr], *, is_exact: bool = False) -> Expr:
    """A scalar function of the IR; exact sums and products may be read in any order."""
    if fn in _PREFIXES:
        return Expr(f"{_PREFIXES[fn]}{args[0].at(Precedence.UNARY)}", Precedence.UNARY)
    if fn not in INFIX:
        return call(_NAMES.get(fn, fn), *args)
    strength = OPERATORS[INFIX[fn]]
    left = args[0].at(strength + (strength == Precedence.COMPARE))
    right = args[1].at(strength + (fn not in ("add", "mul") or not is_exact))
    return Expr(f"{left} {INFIX[fn]} {right}", strength)


def call(name: str, *args: object) -> Expr:
    """``name(args)``."""
    return Expr(f"{name}({', '.join(map(str, args))})")


def element(name: str, *indices: object) -> Expr:
    """``name[indices]``."""
    return Expr(f"{name}[{', '.join(map(str, indices))}]")


def conditional(x: Expr, condition: Expr) -> Expr:
    """``x`` where a condition holds, else 0."""
    return Expr(
        f"{x.at(Precedence.COMPARE)} if {condition.at(Precedence.COMPARE)} else 0",
        Precedence.CONDITIONAL,
    )


def add(x: Expr, y: Expr) -> Expr:
    """A sum of indices, without terms that are zero."""
    if x.constant == 0 or y.constant == 0:
        return y if x.constant == 0 else x
    return function("add", [x, y], is_exact=True)


def subtract(x: Expr, y: Expr) -> Expr:
    """A difference of indices, worked out where both are known."""
    if x.constant is not None and y.constant is not None:
        return number(x.constant - y.constant)
    return x if y.constant == 0 else function("sub", [x, y])


def multiply(x: Expr, y: Expr) -> Expr:
    """A product of indices, worked out where both are known."""
    if x.constant is not None and y.constant is not None:
        return number(x.constant * y.constant)
    if x.constant == 1 or y.constant == 1:
        return y if x.constant == 1 else x
    return function("mul", [x, y], is_exact=True)


def product(factors: list[Expr]) -> Expr:
    """All factors multiplied."""
    return reduce(multiply, factors, number(1))


Assignment = tuple[str, str, tuple[SourceLocation, ...]]
"""A target, what it becomes, and the user's lines behind that."""


def at_once(rows: list[Assignment]) -> list[Assignment]:
    """Assignments one by one, or as one where a later one reads what an earlier one changes."""
    later = [" ".join(new for _, new, _ in rows[n + 1 :]) for n in range(len(rows))]
    pairs = zip(rows, later)
    if not any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", rest) for (name, _, _), rest in pairs):
        return rows
    targets, made, sources = zip(*rows)
    return [(", ".join(targets), ", ".join(made), sum(sources, ()))]


class Listing:
    """The text of one kernel.

    ``lengths`` are those of the blocks' tiles, until the present loop ends; ``defined`` are scalars
    with a line of their own.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.names = Names(kernel.parameters)
        self.lines = Lines(has_origins=kernel.shows_lines)
        self.lengths: dict[str, Expr] = {}
        self._scalars: dict[ir.Variable, Expr] = {}
        self._sources: dict[ir.Variable, tuple[SourceLocation, ...]] = {}
        self.defined: set[ir.Variable] = set()
        for parameter in kernel.parameters:
            if isinstance(parameter, ir.Variable):
                self._scalars[parameter] = Expr(self.names.of(parameter))

    def scalar(self, variable: ir.Variable) -> Expr:
        """What stands for a scalar: a name, a number, or an expression used just once."""
        return self._scalars[variable]

    def inline(
        self, variable: ir.Variable, made: Expr, sources: Iterable[SourceLocation] = ()
    ) -> None:
        """Let an expression stand for a scalar; ``sources`` are the user's lines behind it."""
        self._scalars[variable] = made
        self._sources[variable] = tuple(sources)

    def define(self, variable: ir.Variable, name: str = "") -> str:
        """Let a scalar go by a name of its own, or by a given one."""
        if name:
            self.names.share(variable, name)
        name = self.names.of(variable)
        self._scalars[variable] = Expr(name)
        self.defined.add(variable)
        return name

    def sources(self, variable: ir.Variable) -> tuple[SourceLocation, ...]:
        """The user's lines behind a scalar that is part of other expressions."""
        return self._sources.get(variable, ())

    def length(self, dim: Dim) -> Expr:
        """How many elements an axis has here."""
        return product([self._factor(factor, self.lengths) for factor in dim.factors])

    def full_length(self, dim: Dim) -> Expr:
        """How many elements an axis has at most."""
        return product([self._factor(factor, {}) for factor in dim.factors])

    def _factor(self, factor: int | str, known: Mapping[str, Expr]) -> Expr:
        if isinstance(factor, int):
            return number(factor)
        return known.get(factor) or self.block_size(factor)

    def block_size(self, name: str) -> Expr:
        """How long a whole tile is: a constant of the schedule, or a runtime size."""
        sizes = self.kernel.block_sizes
        return number(sizes[name]) if name in sizes else Expr(name)

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Names and lengths given inside are forgotten after."""
        saved = dict(self.lengths)
        with self.names.scope():
            yield
        self.lengths = saved

    def lines_behind(
        self, elements: Iterable[ir.Element], stop: Collection[ir.Element] = ()
    ) -> list[SourceLocation]:
        """The user's lines that elements are computed by, up to those of ``stop``."""
        found = list(ir.walk_elements(elements, stop))
        made = [item for item in found if not isinstance(item, ir.LEAVES) and item not in stop]
        return [*self.behind(found), *(item.label.loc for item in made)]

    def behind(self, elements: Iterable[ir.Element]) -> list[SourceLocation]:
        """The user's lines behind the scalars among some elements."""
        scalars = [item.variable for item in elements if isinstance(item, ir.ReadVariable)]
        return [loc for variable in scalars for loc in self.sources(variable)]


_RESERVED = frozenset(
    {*keyword.kwlist, *FUNCTIONS, *DTYPES_BY_NAME, "range", "reversed", "scratch", "inf", "nan"}
)
_LETTERS = "ijklpqrs"
Named = ir.Tensor | ir.Variable | ir.Tile | ir.Unread


class Names:
    """Hands out names, those of parameters first."""

    def __init__(self, parameters: Sequence[Named]) -> None:
        self._taken = set(_RESERVED)
        self._names: dict[Named, str] = {}
        for parameter in parameters:
            self.of(parameter)

    def of(self, item: Named) -> str:
        """The name of an item, its own for as long as the present scope lasts."""
        if item not in self._names:
            self._names[item] = self.fresh(item.label.stem)
        return self._names[item]

    def share(self, item: Named, name: str) -> None:
        """Let an item go by the name of another one, which it takes the place of."""
        self._names[item] = name

    def fresh(self, stem: str) -> str:
        """The stem itself, or numbered when it is taken."""
        stem = re.sub(r"\W", "_", stem)
        name, counter = stem, 1
        while name in self._taken:
            name, counter = f"{stem}_{counter}", counter + 1
        self._taken.add(name)
        return name

    def letters(self, count: int) -> list[str]:
        """Names for the loops of a nest."""
        free = [letter for letter in _LETTERS if letter not in self._taken]
        return [self.fresh(letter) for letter in [*free, *"i" * count][:count]]

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names given inside are free again after."""
        saved = set(self._taken), dict(self._names)
        yield
        self._taken, self._names = saved


MAX_COLUMNS = 100
_INDENT = "    "
_CUT = "..."


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
    def block(self, text: str, remark: str = "") -> Iterator[None]:
        """``text:`` with what is written inside one level deeper."""
        self.put(f"{text}:", remark)
        count = len(self._lines)
        self._depth += 1
        yield
        if len(self._lines) == count:
            self.put("pass")
        self._depth -= 1

    def reword(self, old: str, new: str) -> bool:
        """Let the present block begin with another line; False if it is not empty any more."""
        indent = _INDENT * (self._depth - 1)
        if self._lines[-1] != f"{indent}{old}:":
            return False
        self._lines[-1:] = _wrap(f"{indent}{new}:", indent + 2 * _INDENT)
        return True

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
        line, MAX_COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
