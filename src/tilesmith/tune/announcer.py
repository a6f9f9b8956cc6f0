"""Tells the listener what happens; what is known before the search is announced waits for that."""

from __future__ import annotations

from tilesmith.store.outcome import Outcome
from tilesmith.tune.deadline import Deadline
from tilesmith.tune.listener import Listener, Progress, SearchStart
from tilesmith.tune.search.interface import Search
from tilesmith.tune.tally import Tally


class Announcer:
    """Between the search loop and its listener."""

    def __init__(
        self, search: Search, tally: Tally, listener: Listener, deadline: Deadline
    ) -> None:
        self._search = search
        self._tally = tally
        self._listener = listener
        self._deadline = deadline
        self._budget_s = deadline.budget_s
        self._generation = 0
        self._early: list[tuple[Outcome, int]] | None = []

    def start(self, start: SearchStart) -> None:
        """The search begins."""
        early, self._early = self._early or [], None
        self._listener.on_start(start)
        for outcome, num_in_flight in early:
            self.tell(outcome, num_in_flight)

    def tell(self, outcome: Outcome, num_in_flight: int) -> None:
        """An outcome, which is in the books; so many others are on their way."""
        if self._early is not None:
            self._early.append((outcome, num_in_flight))
            return
        progress = Progress(
            self._deadline.elapsed_s,
            self._budget_s,
            len(self._tally.outcomes),
            self._generation,
            self._tally.best_entry,
            num_in_flight,
        )
        self._listener.on_outcome(outcome, progress)
        self.note_generation()

    def note_generation(self) -> None:
        """Sum up a generation that is over."""
        if self._search.generation != self._generation:
            self.close_generation()
            self._generation = self._search.generation

    def close_generation(self) -> None:
        """Sum up the last one."""
        if self._tally.num_in_generation:
            summary = self._tally.close_generation(self._generation, self._deadline.elapsed_s)
            self._listener.on_generation(summary)
