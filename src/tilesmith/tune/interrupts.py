"""Ctrl-C during a search: the first asks it to end, the second ends it at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from typing_extensions import Self


class Interrupts:
    """While entered, the first SIGINT only sets a flag; a second raises KeyboardInterrupt.

    A wait for a child process is thus never torn apart by the first one. In a thread other than the
    main one, where signals do not arrive, nothing is changed.
    """

    def __init__(self) -> None:
        self.is_requested = False
        self._previous: Any = None
        self._is_installed = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._note)
            self._is_installed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_installed:
            signal.signal(signal.SIGINT, self._previous)
            self._is_installed = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True
