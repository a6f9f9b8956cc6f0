"""What is built and waits for the bench, in the order of its turns: the default before all others.

Without it nobody could tell whether a search has gained anything: whichever candidate is built
first, and measured last before the budget ends, would win against nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate
from tilesmith.tune.deadline import Deadline
from tilesmith.tune.jobs import BuildReply
from tilesmith.tune.seeds import DEFAULT_ORIGIN
from tilesmith.tune.stations import Entrant

Built = tuple[Entrant, BuildReply]
HOLD_SHARE = 0.5
"""Of the budget: so long others wait for a default that takes long to build."""


class ReadyQueue:
    """Built entrants."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._items: deque[Built] = deque()
        self.default: Config | None = None
        """The default, if it was submitted."""
        self._is_building_default = False

    def __len__(self) -> int:
        return len(self._items)

    def note_submitted(self, candidate: Candidate) -> None:
        """A candidate is being built."""
        if candidate.origin == DEFAULT_ORIGIN:
            self.default, self._is_building_default = candidate.config, True

    def extend(self, built: Iterable[Built]) -> None:
        """Take over what is built."""
        for item in built:
            if item[0].candidate.config == self.default:
                self._is_building_default = False
                self._items.appendleft(item)
            else:
                self._items.append(item)

    def pop(self) -> Built:
        """The next one."""
        return self._items.popleft()

    @property
    def is_held(self) -> bool:
        """Whether those that are here wait for the default."""
        end_s = HOLD_SHARE * self._deadline.budget_s
        return self._is_building_default and self._deadline.elapsed_s < end_s
