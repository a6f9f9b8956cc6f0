"""Listeners that cannot end what they are told about."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, TypeVar

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
