"""Warnings as the user sees them: printed to stderr, once for each class and place."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from typing import TextIO

from tilesmith.diagnostics.catalogue import BaseWarning
from tilesmith.diagnostics.errors import ALL_WARNINGS
from tilesmith.diagnostics.location import SourceLocation


class WarningLog:
    """Prints warnings and remembers which; one log lives as long as the kernel it belongs to."""

    def __init__(
        self, ignore: tuple[type[BaseWarning], ...] = (), stream: TextIO | None = None
    ) -> None:
        self.ignore = ignore
        self._stream = stream
        self._printed: set[tuple[type[BaseWarning], object]] = set()

    def warn(self, warning: type[BaseWarning], *, loc: SourceLocation, **details: object) -> None:
        """Print a warning about ``loc``, unless its class is ignored or it was printed before."""
        place = loc if loc.line else tuple(map(str, details.values()))
        if issubclass(warning, self.ignore) or (warning, place) in self._printed:
            return
        self._printed.add((warning, place))
        # Looked up now and not at import, so that a redirected stderr is respected.
        stream = self._stream or sys.stderr
        text = warning(loc=loc, related=None, **details).report()
        # A kernel runs also where nobody reads: stderr may be closed, full or None.
        with suppress(AttributeError, OSError, ValueError):
            stream.write(f"{text}\n")


def find_warnings(items: Iterable[str | type]) -> tuple[type[BaseWarning], ...]:
    """The warning classes meant by ``ignore_warnings``: classes, or names of classes."""
    return tuple(map(_find_warning, items))


def _find_warning(item: str | type) -> type[BaseWarning]:
    known = {cls.__name__: cls for cls in (BaseWarning, *ALL_WARNINGS)}
    if isinstance(item, str) and item in known:
        return known[item]
    if isinstance(item, type) and issubclass(item, BaseWarning):
        return item
    near = get_close_matches(str(item), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
    raise ValueError(f"ignore_warnings: {item!r} is not a warning of this package; {hint}")
