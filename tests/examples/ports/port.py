"""What a port is to the suites: a case of the examples that also has a size people run it at."""

from __future__ import annotations

from dataclasses import dataclass

from tests.examples.case import Case, Size


@dataclass(frozen=True)
class Port(Case):
    """One kernel of ``examples/ports`` with one kind of arguments.

    Attributes:
        typical: a size of production, for which default code of a GPU must not spill.
    """

    typical: Size = ()
