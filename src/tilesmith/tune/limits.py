"""What ends a search from outside: the budget, and Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic
from types import FrameType
from typing import Any

from typing_extensions import Self


class Deadline:
    """A moment on a clock. Time for the finals can be set aside and given back."""

    def __init__(self, budget_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._start = clock()
        self.budget_s = budget_s
        self.reserved_s = 0.0
        """Kept for what comes after the search."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the search began."""
        return self._clock() - self._start

    def elapsed_at(self, moment: float) -> float:
        """From the start to a moment on the clock."""
        return moment - self._start

    @property
    def remaining_s(self) -> float:
        """Until the reserved time begins; negative afterwards."""
        return self.budget_s - self.reserved_s - self.elapsed_s

    @property
    def is_over(self) -> bool:
        """Whether the search must end."""
        return self.remaining_s <= 0.0

    @property
    def is_past(self) -> bool:
        """Whether the reserved time is used up as well."""
        return self.elapsed_s >= self.budget_s

    def cap(self, timeout_s: float) -> float:
        """The timeout, or what is left of all time if that is less."""
        return max(0.0, min(timeout_s, self.budget_s - self.elapsed_s))

    def end(self) -> None:
        """The search ends now; what was reserved is left."""
        self.budget_s = min(self.budget_s, self.elapsed_s + self.reserved_s)
        self.reserved_s = 0.0


class Interrupts:
    """While entered, the first SIGINT only sets a flag; a second raises KeyboardInterrupt.

    A wait for a child process is thus never torn apart by the first one. In a thread other than the
    main one, where signals do not arrive, nothing is changed.
    """

    def __init__(self) -> None:
        self.is_requested = False
        self._restore = ExitStack()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            previous: Any = signal.signal(signal.SIGINT, self._note)
            self._restore.callback(signal.signal, signal.SIGINT, previous)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore.close()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True
