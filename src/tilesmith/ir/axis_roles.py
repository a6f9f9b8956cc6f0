"""How each axis of an op's operands takes part in its results.

Every op class declares one form of this module; a class without one does not load. A form tells,
for each axis of each operand, its *role*: which lanes along it one lane of the result comes from.

==========  ======================================================================================
kept        the lane of the same number along result axis ``to``
repeated    its only lane, whatever the lane of the result (an axis of size 1 that broadcasts)
combined    all of them together: the result lacks the axis (reductions, contractions)
mixed       several of them, along result axis ``to`` (scans, sorts)
indexed     one of them, which a constant or another operand picks (select, gather)
moved       one of them, found from several result axes together (reshape, join)
opaque      nobody can tell: the op is the user's own code, or shows the tile to the user
==========  ======================================================================================

A result axis to which no operand axis goes is new. Invalid lanes along combined and mixed axes
would reach valid ones, so the op says what they must hold (``Operation.neutral``). Squeezing,
masking, rolling, flattening, facts and CPU coordinates follow from the form, not from op classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from typing_extensions import override

from tilesmith.ir.types import Shape, TileType, Value


class Role(Enum):
    """What becomes of the lanes along one axis of an operand."""

    KEPT = "kept"
    REPEATED = "repeated"
    COMBINED = "combined"
    MIXED = "mixed"
    INDEXED = "indexed"
    MOVED = "moved"
    OPAQUE = "opaque"


@dataclass(frozen=True)
class AxisRole:
    """The role of one operand axis, and the result axis it goes to if there is one.

    Where an op has no result, that is an axis of the tile it stores.
    """

    role: Role
    to: int | None = None


OperandRoles = tuple[AxisRole, ...]
"""The roles of one operand's axes; empty for scalars and tensors."""

_KEPT = tuple(AxisRole(Role.KEPT, axis) for axis in range(32))
_REPEATED, _COMBINED = AxisRole(Role.REPEATED), AxisRole(Role.COMBINED)
_INDEXED, _MOVED, _OPAQUE = AxisRole(Role.INDEXED), AxisRole(Role.MOVED), AxisRole(Role.OPAQUE)


TileOp = Any
"""An op. Its class, declared above these forms, has the attributes that a form names."""


def _kept(rank: int) -> OperandRoles:
    return _KEPT[:rank]


def _rank(value: Value) -> int:
    return value.type.rank if isinstance(value.type, TileType) else 0


def _aligned(part: Value, target: Shape) -> OperandRoles:
    """The roles of axes that broadcast to a target, aligned at the last axis."""
    if not isinstance(part.type, TileType):
        return ()
    offset = len(target) - part.type.rank
    return tuple(
        _KEPT[axis + offset] if dim == target[axis + offset] else _REPEATED
        for axis, dim in enumerate(part.type.shape)
    )


@dataclass(frozen=True)
class AxisForm:
    """A form. ``attribute`` names the field of the op that holds axis numbers, if one does."""

    attribute: str = ""
    roles: ClassVar[frozenset[Role]] = frozenset()
    """The roles that may occur."""
    is_lane_wise: ClassVar[bool] = False
    """Whether one lane of a result comes from one lane of each operand, found axis by axis."""
    text: ClassVar[str] = ""
    """One phrase for the reference of the IR; ``{}`` is the attribute."""

    def of(self, op: TileOp) -> tuple[OperandRoles, ...]:
        """The roles of the axes of each operand, in the order of ``operand_values``."""
        return tuple(self._of_operand(op, value) for value in op.operand_values())

    def _of_operand(self, op: TileOp, value: Value) -> OperandRoles:
        return _kept(_rank(value))

    def numbers(self, op: TileOp) -> tuple[int, ...]:
        """The axis numbers that the op's attribute holds."""
        held = getattr(op, self.attribute)
        return (held,) if isinstance(held, int) else held

    def numbered(self, op: TileOp) -> Value:
        """The tile whose axes those are."""
        return next(op.operand_values())

    def describe(self) -> str:
        """The phrase with the name of the attribute."""
        return self.text.format(f"`{self.attribute}`")


class Kept(AxisForm):
    """Operands and result have the same axes, and every lane is computed by itself."""

    roles = frozenset({Role.KEPT})
    is_lane_wise = True
    text = "all kept"


class Uniform(AxisForm):
    """All result axes are new, and their lanes alike: constants, and ops without tiles."""

    is_lane_wise = True
    text = "none; new ones have all lanes alike"


class Numbered(AxisForm):
    """The one result axis is new, and its lanes are numbered."""

    is_lane_wise = True
    text = "none; a new one has its lanes numbered"


class Inserted(AxisForm):
    """The result axes named are new and of size 1; the others are kept."""

    roles = frozenset({Role.KEPT})
    is_lane_wise = True
    text = "{} new, others kept"

    @override
    def numbered(self, op: TileOp) -> Value:
        return op.results[0]

    @override
    def _of_operand(self, op: TileOp, value: Value) -> OperandRoles:
        new = self.numbers(op)
        rank = _rank(value) + len(new)
        return tuple(_KEPT[axis] for axis in range(rank) if axis not in new)


class Repeated(AxisForm):
    """Axes of size 1 are repeated to the result's; the others are kept."""

    roles = frozenset({Role.KEPT, Role.REPEATED})
    is_lane_wise = True
    text = "kept, or repeated from size 1"

    @override
    def _of_operand(self, op: TileOp, value: Value) -> OperandRoles:
        return _aligned(value, op.results[0].tile.shape)


class Permuted(AxisForm):
    """Result axis ``i`` is operand axis ``order[i]``."""

    roles = frozenset({Role.KEPT})
    is_lane_wise = True
    text = "all kept, in {}"

    @override
    def _of_operand(self, op: TileOp, value: Value) -> OperandRoles:
        places = {axis: place for place, axis in enumerate(self.numbers(op))}
        return tuple(_KEPT[places[axis]] for axis in range(len(places)))


class Reshaped(AxisForm):
    """The lanes of all axes are counted row by row, and cut into axes anew."""

    roles = frozenset({Role.MOVED})
    text = "all moved"

    @override
    def _of_operand(self, op: TileOp, value: Value) -> OperandRoles:
        return (_MOVED,) * _rank(value)


class Joined(AxisForm):
    """The operands stand side by side along a new last axis, which tells them apart."""

    roles = frozenset({Role.KEPT, Role.MOVED})
    text = "all kept; a new last one tells operands apart"


class Picked(AxisForm):
    """A constant picks the lane along one axis, which the result lacks."""

    roles = frozenset({Role.KEPT, Role.INDEXED})
    text = "{} indexed by a constant, others kept"

    @override
    def _of_operand(self, op: TileOp, value: Value) -> OperandRoles:
        return _along(self.numbers(op)[0], _rank(value), _INDEXED, drops=True)


class Gathered(AxisForm):
    """The second operand, of the result's shape, says the lane of the first along one axis."""

    roles = frozenset({Role.KEPT, Role.INDEXED})
    text = "{} indexed by `index`, others kept"

    @override
    def of(self, op: TileOp) -> tuple[OperandRoles, ...]:
        rank = op.results[0].tile.rank
        return _along(self.numbers(op)[0], rank, _INDEXED, drops=False), _kept(rank)


class Along(AxisForm):
    """The lanes of each operand along one axis meet each other; those along others do not."""

    def axis(self, op: TileOp) -> int:
        """The axis along which they meet."""
        return self.numbers(op)[0]


class Combined(Along):
    """The lanes of each operand along one axis give one element; the result lacks the axis."""

    roles = frozenset({Role.KEPT, Role.COMBINED})
    text = "{} combined, others kept"

    @override
    def _of_operand(self, op: TileOp, value: Value) -> OperandRoles:
        return _along(self.axis(op), _rank(value), _COMBINED, drops=True)


class Mixed(Along):
    """The lanes of each operand along one axis meet, and the result has the axis."""

    roles = frozenset({Role.KEPT, Role.MIXED})
    text = "{} mixed, others kept"

    @override
    def _of_operand(self, op: TileOp, value: Value) -> OperandRoles:
        axis = self.axis(op)
        return _along(axis, _rank(value), AxisRole(Role.MIXED, axis), drops=False)


def _along(axis: int, rank: int, role: AxisRole, *, drops: bool) -> OperandRoles:
    """One axis has the role; the others are kept, and move up if the result lacks the one."""
    return tuple(
        role if number == axis else _KEPT[number - (drops and number > axis)]
        for number in range(rank)
    )


class Contracted(AxisForm):
    """A matrix product: rows of the first and columns of the second operand are kept."""

    roles = frozenset({Role.KEPT, Role.REPEATED, Role.COMBINED})
    text = "last of `lhs`, last but one of `rhs` combined"

    @override
    def of(self, op: TileOp) -> tuple[OperandRoles, ...]:
        lhs, rhs, *rest = op.operand_values()
        shape = op.results[0].tile.shape
        last = len(shape) - 1
        batch = [_aligned_batch(value, shape) for value in (lhs, rhs)]
        rows, columns = _KEPT[last - 1], _KEPT[last]
        return (
            (*batch[0], rows, _COMBINED),
            (*batch[1], _COMBINED, columns),
            *(_kept(_rank(value)) for value in rest),
        )


def _aligned_batch(value: Value, shape: Shape) -> OperandRoles:
    pairs = enumerate(zip(value.tile.shape[:-2], shape))
    return tuple(_KEPT[i] if a == b else _REPEATED for i, (a, b) in pairs)


class Accessed(AxisForm):
    """Indices, masks and the like broadcast to the tile that is read or written."""

    roles = frozenset({Role.KEPT, Role.REPEATED})
    text = "aligned with the accessed tile"

    @staticmethod
    def tile(op: TileOp) -> Value:
        """The tile that is read or written."""
        return getattr(op, "value", None) or op.results[0]

    @override
    def _of_operand(self, op: TileOp, value: Value) -> OperandRoles:
        return _aligned(value, self.tile(op).tile.shape)


class Carried(AxisForm):
    """Values pass through as they are: loops, branches, and what ends their regions."""

    roles = frozenset({Role.KEPT})
    text = "all kept"


class Opaque(AxisForm):
    """The op sees whole tiles: code of the user's own, and what shows tiles to the user."""

    roles = frozenset({Role.OPAQUE})
    text = "opaque"

    @override
    def _of_operand(self, op: TileOp, value: Value) -> OperandRoles:
        return (_OPAQUE,) * _rank(value)


LANES_MEET = frozenset({Role.COMBINED, Role.MIXED})
"""Roles in which one lane of the result comes from several lanes of an operand."""
FORMS: tuple[type[AxisForm], ...] = (
    Kept, Uniform, Numbered, Inserted, Repeated, Permuted, Reshaped, Joined, Picked, Gathered,
    Combined, Mixed, Contracted, Accessed, Carried, Opaque,
)  # fmt: skip
