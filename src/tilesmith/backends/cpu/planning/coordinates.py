"""Where an element of a tile lies, in terms of the loops around it.

A coordinate is an axis of the loop nest, zero (an axis of one element), a digit of a
reinterpreted position (behind a reshape), a fixed position, or one that a tile says.
``operands_at`` follows coordinates through ops whose results are computed on demand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tilesmith.backends.cpu.loop_ir.elements import Fixed, LoopIndex
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.ir import axis_roles as forms
from tilesmith.ir.axis_roles import OperandRoles, Role
from tilesmith.ir.operation import Operation, Trait
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.rearrangement import Gather, Select
from tilesmith.ir.types import Shape, Value


@dataclass(frozen=True)
class Zero:
    """The only position of an axis of one element."""


@dataclass(frozen=True)
class Digit:
    """Position along ``shape[axis]`` of the element that lies at ``coords`` of ``source``."""

    coords: tuple[Coord, ...]
    source: Shape
    shape: Shape
    axis: int


@dataclass(frozen=True)
class Indirect:
    """The position that an element of a tile of integers says."""

    value: Value
    coords: tuple[Coord, ...]


Coord = LoopIndex | Zero | Digit | Fixed | Indirect
Coords = tuple[Coord, ...]
ZERO = Zero()
Place = tuple[Value, Coords]
"""A tile and the position of one of its elements."""

_VIRTUAL_FORMS = (
    forms.Kept, forms.Uniform, forms.Numbered, forms.Inserted, forms.Repeated, forms.Permuted,
    forms.Reshaped, forms.Joined, forms.Picked, forms.Gathered,
)  # fmt: skip
"""Forms in which an element of a result comes from at most one element of each operand."""


@cache
def is_virtual(cls: type[Operation]) -> bool:
    """Whether results of such ops need no memory: elements are computed where they are used."""
    if isinstance(cls.form, forms.Accessed):
        return Trait.WRITES not in cls.traits
    return isinstance(cls.form, _VIRTUAL_FORMS) and Trait.PURE in cls.traits


def space_of(shape: Shape) -> Shape:
    """The dimensions a loop is needed for."""
    return tuple(dim for dim in shape if not dim.is_one)


def own_coords(shape: Shape) -> Coords:
    """The coordinates of a tile in the nest over its own space."""
    numbers = iter(range(len(shape)))
    return tuple(ZERO if dim.is_one else LoopIndex(next(numbers)) for dim in shape)


def own_place(value: Value) -> Place:
    """The element that each step of the nest over a tile's own space computes."""
    return value, own_coords(value.tile.shape)


def operands_at(op: Operation, coords: Coords) -> list[Place]:
    """The elements that the element of ``op``'s result at ``coords`` is computed from."""
    form = op.form
    if isinstance(form, forms.Kept):
        return [(value, coords) for value in op.operand_values()]
    if isinstance(form, forms.Accessed):
        assert isinstance(op, (Load, Store, Atomic))
        return access_places(op, coords)
    if isinstance(form, forms.Reshaped):
        (x,) = op.operand_values()
        return [(x, _of_reshape(x.tile.shape, op.result.tile.shape, coords))]
    if isinstance(form, forms.Joined):
        sides = [(value, coords[:-1]) for value in op.operand_values()]
        last = coords[-1]
        return [sides[last.position]] if isinstance(last, Fixed) else sides
    if not is_virtual(type(op)):
        raise InternalError(problem=f"{op.name} is not computed element by element", loc=op.loc)
    pairs = zip(op.operand_values(), op.axis_roles())
    places = [(value, _placed(op, value, roles, coords)) for value, roles in pairs]
    # The positions of a gather are known before its element.
    return places[::-1] if isinstance(form, forms.Gathered) else places


def _placed(op: Operation, value: Value, roles: OperandRoles, coords: Coords) -> Coords:
    """Where an operand's element lies, axis by axis."""
    found: list[Coord] = []
    for role, dim in zip(roles, value.tile.shape):
        if role.role is Role.KEPT and role.to is not None:
            found.append(coords[role.to])
        elif dim.is_one or role.role is Role.REPEATED:
            found.append(ZERO)
        elif isinstance(op, Gather):
            found.append(Indirect(op.index, coords))
        else:
            assert isinstance(op, Select)
            found.append(Fixed(op.position))
    return tuple(found)


def access_places(op: Load | Store | Atomic, coords: Coords) -> list[Place]:
    """The elements of the indices, then of an address or expected value, last of the mask."""
    shape = (op.result if isinstance(op, Load) else op.value).tile.shape
    extra = op.expected if isinstance(op, Atomic) else op.bases
    parts = [*op.indices, *(part for part in (extra, op.mask) if part is not None)]
    return [(part, _aligned(part, shape, coords)) for part in parts]


def _aligned(part: Value, shape: Shape, coords: Coords) -> Coords:
    """The coordinates in a tile that broadcasts to ``shape``, aligned at the last axis."""
    rank = part.tile.rank
    if not rank:
        return ()
    pairs = zip(part.tile.shape, shape[-rank:], coords[-rank:])
    return tuple(ZERO if dim.is_one and not full.is_one else c for dim, full, c in pairs)


def _of_reshape(source: Shape, result: Shape, coords: Coords) -> Coords:
    if space_of(source) == space_of(result):
        wide = iter(c for c, dim in zip(coords, result) if not dim.is_one)
        return tuple(ZERO if dim.is_one else next(wide) for dim in source)
    return tuple(
        ZERO if dim.is_one else Digit(coords, result, source, axis)
        for axis, dim in enumerate(source)
    )


def axes_of(coords: Coords) -> frozenset[int]:
    """The loops that coordinates move with."""
    found: set[int] = set()
    for coord in coords:
        if isinstance(coord, LoopIndex):
            found.add(coord.axis)
        elif isinstance(coord, (Digit, Indirect)):
            found |= axes_of(coord.coords)
    return frozenset(found)
