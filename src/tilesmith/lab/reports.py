"""What reports share: listeners that cannot end a run, files that lines are appended to, JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from tilesmith.store.config_text import LOGGER_NAME

ListenerT = TypeVar("ListenerT")


class SafeListeners(Generic[ListenerT]):
    """Passes everything on; a listener that raises is logged and not told any more."""

    log: ClassVar[logging.Logger]
    failure: ClassVar[str]
    """What the log says then."""
    caught: ClassVar[tuple[type[BaseException], ...]] = (Exception,)

    def __init__(self, listeners: Iterable[ListenerT]) -> None:
        self._listeners = list(listeners)

    def tell(self, say: Callable[[ListenerT], Any]) -> None:
        """Say something to all that are left."""
        self._listeners = [listener for listener in self._listeners if self._try(say, listener)]

    def _try(self, say: Callable[[ListenerT], Any], listener: ListenerT) -> bool:
        try:
            say(listener)
        except self.caught:
            self.log.warning(self.failure, exc_info=True)
            return False
        return True


class LineFile:
    """Appends lines to a file; after the first failure it says so once and writes no more."""

    def __init__(self, path: Path, first_line: str = "") -> None:
        self._path, self._first_line = path, first_line
        self._is_broken = False

    def append(self, line: str) -> None:
        """Write one line so that it is safe; the file is closed again."""
        if self._is_broken:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8", newline="") as file:
                is_new = self._first_line and file.tell() == 0
                file.write(f"{self._first_line}\n{line}\n" if is_new else f"{line}\n")
        except OSError as error:
            self._is_broken = True
            logging.getLogger(LOGGER_NAME).warning(
                "%s is not written any further: %s", self._path, error.strerror or error
            )


def json_line(values: Mapping[str, Any]) -> str:
    """Strict JSON on one line: times that do not exist are null."""
    return json.dumps(_without_infinity(values), allow_nan=False, default=str)


def with_suffix(prefix: Path, suffix: str) -> Path:
    """The path of one file of a report: the prefix may have dots of its own."""
    return prefix.with_name(prefix.name + suffix)


def _without_infinity(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _without_infinity(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_infinity(item) for item in value]
    return value
