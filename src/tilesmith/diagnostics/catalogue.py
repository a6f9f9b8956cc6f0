"""The root of the error catalogue, and its texts: a message, places in the source, labelled parts.

There is one class per mistake with templates in it; a marker stands under the offending expression.

``details`` fill the templates. A sequence fills in as a comma-separated list. A part that lacks a
detail, or has an empty one, is left out: an optional detail belongs in a part, not in the message.
"""

from __future__ import annotations

import linecache
import unicodedata
from collections.abc import Mapping
from functools import partial
from string import Formatter
from typing import ClassVar

from typing_extensions import Self

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
    places = [(f"--> {loc.link}{_in_function(loc)}", "^", loc)]
    callee, caller = loc, loc.caller
    while caller is not None:
        # A recursion shows once.
        if caller != callee:
            places.append((f"called from {caller.link}{_in_function(caller)}", "-", caller))
        callee, caller = caller, caller.caller
    return places + [(f"{label}: {place.link}", "-", place) for label, place in related.items()]


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


PARTS = ("expected", "found", "note", "fix")


def placeholders(template: str) -> tuple[str, ...]:
    """The names a template asks for, in order, each once."""
    names = (name for _, name, _, _ in Formatter().parse(template) if name)
    return tuple(dict.fromkeys(names))


def _text(detail: object) -> str:
    if isinstance(detail, (list, tuple, set, frozenset)):
        return ", ".join(map(str, detail))
    return getattr(detail, "__name__", "") if isinstance(detail, type) else str(detail)


class Base(RuntimeError):
    """Root of everything this package raises or warns of on purpose.

    Subclasses fill ``message`` and the parts; ``note`` says why the rule is there. A raise site may
    pass a part itself (``fix="..."``) where it knows better than the template. The message is also
    the docstring of a class that has no more to say.
    """

    message: ClassVar[str] = ""
    expected: ClassVar[str] = ""
    found: ClassVar[str] = ""
    note: ClassVar[str] = ""
    fix: ClassVar[str] = ""
    fixes: ClassVar[Mapping[str, str]] = {}
    """A fix for each known value of the first detail in ``message``; ``fix`` is for the others."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__doc__ = cls.__doc__ or cls.message
        if cls.__module__.startswith("tilesmith.diagnostics."):
            # Tracebacks show the name under which users import and catch the class.
            cls.__module__ = "tilesmith.exc"

    def __init__(
        self,
        *,
        loc: SourceLocation | None = None,
        related: Mapping[str, SourceLocation] | None = None,
        **details: object,
    ) -> None:
        self.loc = loc
        self.related = dict(related or {})
        self.details = {name: _text(detail) for name, detail in details.items()}
        super().__init__(self.render())

    def render(self) -> str:
        """The full text: message, places with their source lines, then the parts."""
        shown = {name: f"<{name}>" for name in placeholders(self.message)} | self.details
        parts = {label: self._part(label) for label in PARTS}
        return render_report(self.message.format(**shown), parts, self.loc, self.related)

    def _part(self, label: str) -> str:
        if label in self.details:
            return self.details[label]
        template = self._chosen_fix() if label == "fix" else getattr(type(self), label)
        # An empty list of suggestions suggests nothing.
        if not all(self.details.get(name) for name in placeholders(template)):
            return ""
        return template.format(**self.details)

    def _chosen_fix(self) -> str:
        key = next(iter(placeholders(self.message)), "")
        # Syntax is quoted in messages: `break`.
        return self.fixes.get(self.details.get(key, "").replace("`", ""), self.fix)

    def located(self, loc: SourceLocation) -> Self:
        """The same error with a place, if it has none yet."""
        if self.loc is not None and self.loc.line:
            return self
        return type(self)(loc=loc, related=self.related, **self.details)

    def __reduce__(self) -> tuple[partial[Self], tuple[()]]:
        # Exceptions are rebuilt from positional arguments by default; ours have none.
        rebuild = partial(type(self), loc=self.loc, related=self.related, **self.details)
        return rebuild, ()


class BaseError(Base):
    """A mistake in user code: what is wrong, where, what was expected, how to mend it."""

    def report(self) -> str:
        """The text as a compiler would print it."""
        return f"ERROR[{type(self).__name__}]: {self}"


class BaseWarning(Base):
    """A remark that stops nothing; silenced by class through ``ignore_warnings``."""

    def report(self) -> str:
        """The text as it is printed to stderr."""
        return f"WARNING[{type(self).__name__}]: {self}"


class WrappingError(BaseError):
    """An error that passes on another exception as ``problem``: its type's name and its text."""

    message = "{problem}"

    @classmethod
    def wrapping(
        cls, error: BaseException, *, loc: SourceLocation | None = None, **details: object
    ) -> Self:
        """This class with ``problem`` taken from ``error``; raise it ``from error``."""
        text = str(error).strip()
        problem = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return cls(loc=loc, related=None, problem=problem, **details)


class InternalError(WrappingError):
    """Our own mistake, never the user's."""

    message = "internal compiler error: {problem}"
    fix = (
        "this is a bug in tilesmith, not in your kernel: please report it with the kernel's source"
    )


class TypeInferenceError(BaseError):
    """An operation that its operands' types do not have."""

    message = "{problem}"


class TorchOpTracingError(WrappingError):
    """An exception raised by a torch function or a helper while the kernel was traced."""

    message = "`{function}` raised {problem}"
    note = "device code and helpers are run once, at compile time, with symbolic values"


class BackendUnsupported(BaseError):
    """An operation or form without a lowering on the backend."""

    message = "{operation} is not supported by backend {backend}"
