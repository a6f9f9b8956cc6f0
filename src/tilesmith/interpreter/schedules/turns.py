"""Functions that run in turns, one at a time, and say where another may go on.

Each has a thread of its own, but only the one whose turn it is runs: what happens is decided by the
seed alone. At most some are begun and not ended, as on a device that has room for so many.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

IDLE_TURNS = 64
"""Turns that each one gets without anything having changed before it is said to wait for ever."""
Choose = Callable[[Sequence[int]], int]
"""Who is next: one of the positions of those who may go on, in the order in which they began."""


class WaitsForEver(Exception):  # noqa: N818 - says what has happened
    """Those that have begun wait for what none of them will do."""


class _Abandoned(BaseException):
    """Ends a function that gets no more turns."""


@dataclass(eq=False)
class _Turn:
    """One function: where it stands, and what it waits for."""

    number: int
    function: Callable[[], None]
    may_run: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None
    is_over: bool = False
    error: BaseException | None = None
    is_met: Callable[[], bool] | None = None
    """What it waits for; None: nothing."""
    reason: str = ""

    @property
    def can_go_on(self) -> bool:
        """Whether it does not wait, or no longer."""
        return self.is_met is None or self.is_met()


class Turns:
    """Runs functions in turns until all have ended."""

    def __init__(
        self, functions: Sequence[Callable[[], None]], num_resident: int, choose: Choose
    ) -> None:
        self._waiting = [_Turn(number, function) for number, function in enumerate(functions)]
        self._waiting.reverse()
        self._begun: list[_Turn] = []
        self._num_resident = max(1, num_resident)
        self._choose = choose
        self._is_back = threading.Semaphore(0)
        self._current: _Turn | None = None
        self._is_abandoned = False
        self._num_idle = 0
        self.on_turn: Callable[[int], None] = lambda number: None
        """Called with the number of the one whose turn begins."""

    def run(self) -> None:
        """Run all; the first error ends the others."""
        try:
            while self._begin_some():
                self._give_turn(self._next())
        finally:
            self._is_abandoned = True
            for turn in self._begun:
                turn.may_run.release()
                if turn.thread is not None:
                    turn.thread.join()

    def pause(self) -> None:
        """Called by a function: another may go on here."""
        self.wait(None, "")

    def wait(self, is_met: Callable[[], bool] | None, reason: str) -> None:
        """Called by a function that goes on only when something is so."""
        turn = self._current
        assert turn is not None
        turn.is_met, turn.reason = is_met, reason
        self._is_back.release()
        turn.may_run.acquire()
        if self._is_abandoned:
            raise _Abandoned
        turn.is_met = None

    def note_change(self) -> None:
        """Something has changed that others may wait for."""
        self._num_idle = 0

    def _begin_some(self) -> bool:
        """Fill the room with those that have not begun; whether any is there."""
        while self._waiting and len(self._begun) < self._num_resident:
            self._begun.append(self._waiting.pop())
            self.note_change()
        return bool(self._begun)

    def _next(self) -> _Turn:
        ready = [turn for turn in self._begun if turn.can_go_on]
        self._num_idle += 1
        if not ready or self._num_idle > IDLE_TURNS * len(self._begun):
            reasons = [turn.reason for turn in self._begun if not turn.can_go_on]
            raise WaitsForEver(
                f"{len(self._begun)} programs have begun and none can go on, {len(self._waiting)} "
                f"have not begun: {reasons[0] if reasons else 'they ask again and again'}"
            )
        return ready[self._choose(range(len(ready)))]

    def _give_turn(self, turn: _Turn) -> None:
        self._current = turn
        self.on_turn(turn.number)
        if turn.thread is None:
            turn.thread = threading.Thread(target=self._run_one, args=(turn,), daemon=True)
            turn.thread.start()
        else:
            turn.may_run.release()
        self._is_back.acquire()
        if turn.is_over:
            turn.thread.join()
            self._begun.remove(turn)
            self.note_change()
        if turn.error is not None:
            raise turn.error

    def _run_one(self, turn: _Turn) -> None:
        try:
            with torch.no_grad():  # of this thread
                turn.function()
        except _Abandoned:
            return
        except BaseException as error:  # raised again by the one who gives turns
            turn.error = error
        turn.is_over = True
        self._is_back.release()
