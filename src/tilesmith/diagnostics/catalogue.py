"""The root of the error catalogue: one class per mistake, its text as templates in the class.

``details`` fill the templates. A sequence fills in as a comma-separated list. A part that lacks a
detail is left out, so an optional detail belongs in a part and not in the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from string import Formatter
from typing import ClassVar

from typing_extensions import Self

from tilesmith.diagnostics.location import SourceLocation
from tilesmith.diagnostics.render import render_report

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
    pass a part itself (``fix="..."``) where it knows better than the template.
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
        """The full text."""
        shown = {name: f"<{name}>" for name in placeholders(self.message)} | self.details
        parts = {label: self._part(label) for label in PARTS}
        return render_report(self.message.format(**shown), parts, self.loc, self.related)

    def _part(self, label: str) -> str:
        if label in self.details:
            return self.details[label]
        template = self._chosen_fix() if label == "fix" else getattr(type(self), label)
        if not set(placeholders(template)) <= self.details.keys():
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
