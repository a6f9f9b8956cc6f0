"""Where values are used in the emitted text, which are written there, and names of the others.

Positions number the ops in program order. A value that is written at its use (inlined) passes its
operands on to where that use stands, so positions tell when a Python variable is read last.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilesmith.backends.triton.emission.value_facts import PartialTiles
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import If, While
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.types import Value

_ALWAYS_INLINED = (Full, Arange, BlockSize, ExpandDims, Broadcast)
_INLINED_ONCE = (Cast, Mask, Permute, Reshape)


@dataclass
class Uses:
    """Positions of ops and of the uses of values."""

    position: dict[Operation, int] = field(default_factory=dict[Operation, int])
    last_position: dict[Operation, int] = field(default_factory=dict[Operation, int])
    """The last position inside an op's regions, or its own."""
    owner: list[Region] = field(default_factory=list[Region])
    """The region each position belongs to."""
    of: dict[Value, list[int]] = field(default_factory=dict[Value, list[int]])
    inlined: set[Value] = field(default_factory=set[Value])
    home: dict[Value, Region] = field(default_factory=dict[Value, Region])
    """The region in which a value is defined."""
    defining: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    branches: list[tuple[range, range]] = field(default_factory=list[tuple[range, range]])
    """Positions of the two arms of every branch: never both executed."""
    conditions: set[Region] = field(default_factory=set[Region])
    """Conditions of loops that are written as one expression."""

    def positions(self, value: Value) -> list[int]:
        """Where the value is read in the emitted text."""
        return self.of.get(value, [])

    def is_dead(self, op: Operation) -> bool:
        """Whether nothing reads the op's results and it has no effect."""
        is_pure = Trait.PURE in op.traits
        return is_pure and not any(self.positions(value) for value in op.results)

    def is_inlined(self, op: Operation) -> bool:
        """Whether all the op gives is written where it is used."""
        return bool(op.results) and all(value in self.inlined for value in op.results)

    def is_read_after(self, value: Value, position: int) -> bool:
        """Whether the value is still needed once the statement at ``position`` is done."""
        return any(
            use > position and not self._exclusive(use, position) for use in self.positions(value)
        )

    def is_defined_by(self, value: Value, position: int) -> bool:
        """Whether the value exists once the statement at ``position`` is done."""
        op = self.defining.get(value)
        return op is None or self.last_position[op] <= position

    def region_of(self, op: Operation) -> Region:
        """The region an op stands in."""
        return self.owner[self.position[op]]

    def _exclusive(self, one: int, other: int) -> bool:
        return any(
            (one in then and other in otherwise) or (one in otherwise and other in then)
            for then, otherwise in self.branches
        )


def find_uses(function: Function, tiles: PartialTiles) -> Uses:
    """Number the ops and decide, last op first, which values are inlined."""
    uses = Uses()
    order: list[Operation] = []
    starts: set[Value] = set()
    _number(function.body, uses, order, starts)
    for op in reversed(order):
        if _is_inlined(op, uses, starts) or op in tiles.identities:
            uses.inlined.update(op.results)
        _record_operands(op, uses)
        for end in tiles.masked_ends(op):
            # Masks inside the loop read the end again.
            uses.of.setdefault(end, []).append(uses.last_position[op])
    return uses


def is_expression(condition: Region) -> bool:
    """Whether a region computes its yield from scalars alone."""
    pure = all(Trait.PURE in op.traits for op in condition.ops[:-1])
    return pure and all(value.tile.rank == 0 for op in condition.ops for value in op.results)


def _number(region: Region, uses: Uses, order: list[Operation], starts: set[Value]) -> None:
    for value in region.args:
        uses.home[value] = region
        starts.add(value)
    for op in region.ops:
        uses.position[op] = len(order)
        order.append(op)
        uses.owner.append(region)
        spans: list[range] = []
        for inner in op.regions():
            first = len(order)
            _number(inner, uses, order, starts)
            spans.append(range(first, len(order)))
        uses.last_position[op] = len(order) - 1
        if isinstance(op, If):
            uses.branches.append((spans[0], spans[1]))
        if isinstance(op, While) and is_expression(op.condition):
            uses.conditions.add(op.condition)
        for value in op.results:
            uses.home[value] = region
            uses.defining[value] = op


def _record_operands(op: Operation, uses: Uses) -> None:
    if uses.is_inlined(op):
        places = [place for value in op.results for place in uses.positions(value)]
    elif uses.is_dead(op):
        places = []
    else:
        places = [uses.position[op]]
    for value in op.operand_values():
        uses.of.setdefault(value, []).extend(places)


def _is_inlined(op: Operation, uses: Uses, starts: set[Value]) -> bool:
    if Trait.PURE not in op.traits:
        return False
    if uses.region_of(op) in uses.conditions:
        return True
    if isinstance(op, _ALWAYS_INLINED) or (isinstance(op, TileIndex) and op.begin in starts):
        return True
    places = [place for value in op.results for place in uses.positions(value)]
    if len(places) != 1 or len(op.results) != 1:
        return False
    if isinstance(op, (Elementwise, Cast)) and op.result.tile.rank == 0:
        return True
    stays = uses.owner[places[0]] is uses.home[op.result]
    return isinstance(op, (TileIndex, *_INLINED_ONCE)) and stays


class Variables:
    """The Python variable of every named value; carried values and branch results share theirs."""

    def __init__(self, uses: Uses) -> None:
        self._uses = uses
        self._contents: dict[str, list[Value]] = {}
        self._of: dict[Value, str] = {}

    def find_name(self, value: Value) -> str | None:
        """The variable a value has been given, if any."""
        return self._of.get(value)

    def put(self, value: Value, name: str) -> None:
        """Let the value live in this variable."""
        self._of[value] = name
        self._contents.setdefault(name, []).append(value)

    def is_free_after(self, name: str, position: int) -> bool:
        """Whether nothing in the variable is read once the statement at ``position`` is done."""
        return not any(
            self._uses.is_defined_by(value, position) and self._uses.is_read_after(value, position)
            for value in self._contents.get(name, [])
        )

    def try_put(self, value: Value, name: str, region: Region) -> None:
        """Define the value straight into the variable where that overwrites nothing still needed.

        ``region`` is the one at whose end the variable must hold the value.
        """
        op = self._uses.defining.get(value)
        if op is None or value in self._of or value in self._uses.inlined:
            return
        if self._uses.home[value] is region and self._is_free_for(op, name):
            self.put(value, name)

    def try_continue(self, before: Value, op: Operation) -> str | None:
        """The variable of ``before`` if ``op`` may go on using it for its own result."""
        name = self._of.get(before)
        if any(dim.is_one for dim in before.tile.shape):
            # It may be written without its axes of size 1, and a variable has one shape for all.
            return None
        if name is None or self._uses.home[before] is not self._uses.region_of(op):
            return None
        return name if self._is_free_for(op, name) else None

    def _is_free_for(self, op: Operation, name: str) -> bool:
        # A loop overwrites its variables before its body runs, a branch at the end of its arms.
        if any(self._of.get(result) == name for result in op.results):
            # Of another result: both may start from one value, but live on side by side.
            return False
        is_branch = isinstance(op, If)
        position = self._uses.last_position[op] if is_branch else self._uses.position[op]
        return self.is_free_after(name, position)
