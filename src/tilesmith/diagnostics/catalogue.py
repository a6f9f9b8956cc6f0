"""The root of the error catalogue, and its texts: a message, places in the source, labelled parts.

There is one class per mistake with templates in it.

``details`` fill the templates. A sequence fills in as a comma-separated list. A part that lacks a
detail, or has an empty one, is left out: an optional detail belongs in a part, not in the message.
"""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from functools import partial
from string import Formatter
from typing import ClassVar, NamedTuple

from typing_extensions import Self

from tilesmith.diagnostics.line_marks import TAB_WIDTH, marker
from tilesmith.diagnostics.location import SourceLocation

MIN_GUTTER = 3
MAX_CALLERS, MAX_AIRY = 3, 2
"""How many callers are named, and with how many places a report has room for empty lines."""


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
        f"{' ' * gutter} | {marker(text, loc.columns, place.mark)}",
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
