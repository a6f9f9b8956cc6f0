"""What a backend is: a name and a function from IR and schedule to an artifact."""

from __future__ import annotations

from typing import Protocol

from tilesmith.artifacts import Artifact
from tilesmith.ir.function import Function
from tilesmith.schedule.schedule import Schedule


class Backend(Protocol):
    """Makes artifacts. It needs no device, launches nothing and knows no other backend."""

    @property
    def name(self) -> str:
        """The key under which the registry lists it."""
        ...

    def emit(self, function: Function, schedule: Schedule, /) -> Artifact:
        """The artifact that runs ``function`` as ``schedule`` says."""
        ...
