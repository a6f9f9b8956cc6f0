"""Elements that four neighbouring lanes have in common, as random words by their counter.

They depend on a position only through what is left of it when its last two bits are shifted out.
A quarter of the lanes computes them; where others need them, each lane is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import gcd

from tilesmith.backends.cpu.loop_ir.elements import (
    Apply,
    Convert,
    Element,
    LoopIndex,
    Number,
    PositionOf,
    ReadTile,
    ReadVariable,
    Variable,
    View,
    walk_elements,
)
from tilesmith.backends.cpu.loop_ir.statements import Form, Nest, StoreElement

GROUP, SHIFT = 4, 2
LEAST_OPS = 8
"""So many shared ones are worth repeating their results."""
Step = tuple[int, int]
"""By how much an integer grows with each lane, and what it is a multiple of in the first one."""


def share_lanes(nest: Nest, multiples: Mapping[Variable, int]) -> tuple[Nest, frozenset[Element]]:
    """The elements to repeat, and the nest with as many more lanes if it only stores.

    ``multiples`` tells of scalars what they are multiples of.
    """
    if nest.layout.form is not Form.ROWS or nest.lanes < 2 * GROUP:
        return nest, frozenset()
    groups = _Groups(nest.layout.vector_axis, nest.lanes, multiples)
    elements = list(walk_elements(nest.operands))
    if sum(groups.are_shared(element) for element in elements) < LEAST_OPS:
        return nest, frozenset()
    found = frozenset(groups.repeated(elements))
    stores = all(isinstance(write, StoreElement) for write in nest.writes)
    if stores and not any(isinstance(element, ReadTile) for element in elements):
        nest = replace(nest, lanes=GROUP * nest.lanes, may_stream=False)
    return nest, found


@dataclass(frozen=True)
class _Groups:
    """Tells what is shared along one axis."""

    axis: int
    lanes: int
    multiples: Mapping[Variable, int]
    known: dict[Element, bool] = field(default_factory=dict[Element, bool])

    def repeated(self, elements: list[Element]) -> Iterator[Element]:
        """Shared elements that others need."""
        for element in elements:
            if self.axis in element.axes and not self.are_shared(element):
                yield from filter(self.are_shared, element.operands)

    def are_shared(self, element: Element) -> bool:
        """Whether an element is the same in all lanes of a group, and differs between groups."""
        if element not in self.known:
            self.known[element] = self._look(element)
        return self.known[element]

    def _look(self, element: Element) -> bool:
        if self.axis not in element.axes:
            return False
        if self._drops_last_bits(element):
            return True
        is_plain = isinstance(element, (Apply, Convert, View))
        parts = [part for part in element.operands if self.axis in part.axes]
        return is_plain and bool(parts) and all(map(self.are_shared, parts))

    def _drops_last_bits(self, element: Element) -> bool:
        if not isinstance(element, Apply) or element.function != "shr":
            return False
        x, by = element.operands
        step = self._step(x) if isinstance(by, Number) and by.value >= SHIFT else None
        return step is not None and step[0] == 1 and step[1] % GROUP == 0

    def _step(self, element: Element) -> Step | None:
        if isinstance(element, PositionOf):
            return self._step_of_position(element)
        # What fractions add up to is a multiple of nothing.
        is_integer = element.dtype.is_integer
        if is_integer and isinstance(element, (View, Convert)):
            return self._step(element.x)
        if is_integer and isinstance(element, Number):
            return 0, int(element.value)
        if isinstance(element, ReadVariable):
            return 0, self.multiples.get(element.variable, 1)
        if is_integer and isinstance(element, Apply) and element.function in ("add", "mul"):
            lhs, rhs = map(self._step, element.operands)
            if lhs is None or rhs is None:
                return None
            if element.function == "add":
                return lhs[0] + rhs[0], gcd(lhs[1], rhs[1])
            return (0, lhs[1] * rhs[1]) if lhs[0] == rhs[0] == 0 else None
        return None if self.axis in element.axes else (0, 1)

    def _step_of_position(self, element: PositionOf) -> Step | None:
        if not isinstance(element.position, LoopIndex):
            return None
        # Vectors begin at multiples of their length.
        own = (1, self.lanes) if element.position.axis == self.axis else (0, 1)
        if not element.operands:
            return own
        begin = self._step(element.x)
        return None if begin is None else (own[0] + begin[0], gcd(own[1], begin[1]))
