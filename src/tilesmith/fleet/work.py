"""What a fleet works on, and what works: tasks, slots of tasks, and lanes that take slots.

A lane is one device with the processes of one search. A task is a kernel with arguments for one
kind of device; it has as many slots as lanes may search it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tilesmith.schedule.config import Config
from tilesmith.store.lookup import describe_arguments
from tilesmith.store.outcome import Outcome
from tilesmith.targets import Target
from tilesmith.tune.context import Case
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.places import Place
from tilesmith.tune.result import TuneResult


class FleetError(Exception):
    """A fleet that cannot work; the text says why, and what is kept."""


@dataclass(frozen=True)
class Kind:
    """A kind of device. Times of one kind say nothing about another."""

    target: Target
    device: str
    """What times depend on, in words, as keys of winners have it."""

    def __str__(self) -> str:
        return f"{self.device} ({self.target})"


class Lane(Protocol):
    """A device that searches. Used by one thread."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def kind(self) -> Kind:
        """What it measures on."""
        ...

    @property
    def place(self) -> Place:
        """Where its processes run."""
        ...

    @property
    def loss(self) -> str:
        """Why it cannot be used any more; empty while it can."""
        ...

    def revive(self, is_wanted: Callable[[], bool]) -> bool:
        """Find another worker of the same kind after a loss, while there is work for it."""
        ...

    def close(self) -> None:
        """Give back what it holds."""


@dataclass(frozen=True)
class Task:
    """A kernel and its arguments on one kind of device."""

    case: Case
    kind: Kind
    options: TuneOptions

    @property
    def title(self) -> str:
        """Kernel and arguments, for people."""
        definition = self.case.bound.definition
        shown = describe_arguments(definition.parameters, self.case.args, with_values=True)
        return f"{definition.name}({shown})"


@dataclass(frozen=True)
class Slot:
    """The part of one lane in a task: a search of its own, or the finals of all."""

    task: Task
    number: int
    budget_s: float
    finalists: tuple[Config, ...] = ()
    """Where it is the finals: what is compared."""


@dataclass(frozen=True)
class LaneReport:
    """What one lane found in a slot."""

    lane: str
    result: TuneResult
    measured: tuple[Outcome, ...]
    default_ms: float | None


@dataclass
class Progress:
    """How far a task is. Changed under the fleet's lock."""

    num_open: int
    """Slots that have not ended."""
    reports: list[LaneReport] = field(default_factory=list[LaneReport])
    losses: list[str] = field(default_factory=list[str])
    """Lanes that were lost while they worked on it, and why."""
    final: TuneResult | None = None
