"""Everything that is computed for an element.

Unrolled code has thousands of places, and closures with most of them. So places have numbers, and a
closure is collected where it is asked for, not put together at every place on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from tilesmith.backends.cpu.planning import coordinates
from tilesmith.ir.operation import Operation
from tilesmith.ir.types import Value

Node = tuple[coordinates.Place, Operation]


@dataclass(frozen=True)
class Closure:
    """Everything computed for one element, operands before their users."""

    nodes: tuple[Node, ...]
    """Virtual places with their ops."""
    leaves: tuple[coordinates.Place, ...]
    """Stored places."""


class Closures:
    """The closures of one function, each collected once."""

    def __init__(
        self, definitions: Mapping[Value, Operation], is_stored: Callable[[Value], bool]
    ) -> None:
        self._definitions, self._is_stored = definitions, is_stored
        self._numbers: dict[coordinates.Place, int] = {}
        self._places: list[coordinates.Place] = []
        self._nodes: list[Node | None] = []
        """By number: what is computed; None for what is stored."""
        self._operands: list[tuple[int, ...] | None] = []
        self._found: dict[tuple[int, ...], Closure] = {}

    def of(self, places: Collection[coordinates.Place]) -> Closure:
        """What is behind some elements."""
        starts = tuple(map(self._number, places))
        found = self._found.get(starts)
        if found is None:
            found = self._found[starts] = self._collect(starts)
        return found

    def ops_behind(self, place: coordinates.Place) -> Iterator[Operation]:
        """The ops of what is behind a virtual element, users before what they use."""
        seen, waiting = set[int](), [self._number(place)]
        while waiting:
            number = waiting.pop()
            node = self._nodes[number]
            if node is not None and number not in seen:
                seen.add(number)
                yield node[1]
                waiting += self._operands_of(number)

    def _number(self, place: coordinates.Place) -> int:
        number = self._numbers.setdefault(place, len(self._places))
        if number == len(self._places):
            is_stored = self._is_stored(place[0])
            self._places.append(place)
            self._nodes.append(None if is_stored else (place, self._definitions[place[0]]))
            self._operands.append(() if is_stored else None)
        return number

    def _operands_of(self, number: int) -> tuple[int, ...]:
        """Numbers of the places that a place is computed from, the last one first."""
        found = self._operands[number]
        if found is None:
            value, coords = self._places[number]
            places = coordinates.operands_at(self._definitions[value], coords)
            found = self._operands[number] = tuple(map(self._number, reversed(places)))
        return found

    def _collect(self, starts: tuple[int, ...]) -> Closure:
        seen, order = set[int](), list[int]()
        waiting = list(reversed(starts))
        while waiting:
            number = waiting.pop()
            if number < 0:
                # All that it needs is in the order.
                order.append(~number)
            elif number not in seen:
                seen.add(number)
                waiting += (~number, *self._operands_of(number))
        nodes = [self._nodes[number] for number in order]
        leaves = [self._places[number] for number, node in zip(order, nodes) if node is None]
        return Closure(tuple(node for node in nodes if node is not None), tuple(leaves))
