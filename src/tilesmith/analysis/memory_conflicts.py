"""Whether two accesses of one program need their order kept among its threads.

Inside a program, each lane of a tile belongs to some thread. Two accesses of the same elements
by the same lanes keep their order by themselves, except that a load must see a store made
through another layout. What cannot be proven apart is taken to meet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import gcd

from tilesmith.analysis import effects
from tilesmith.analysis.affine import AffineIndex, Definitions, find_affine
from tilesmith.ir.axis_roles import Accessed
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import GridBarrier, GroupBarrier, Loop
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import Dim, Shape, Value


@dataclass(frozen=True, eq=False)
class Access:
    """One op that touches memory. ``group`` None means any; ``forms`` has one entry per index."""

    op: Operation
    group: effects.AliasGroup | None
    tensor: Value | None = None
    indices: tuple[Value, ...] = ()
    forms: tuple[AffineIndex | None, ...] = ()
    shape: Shape = ()

    @property
    def writes(self) -> bool:
        """Whether memory may change."""
        return Trait.WRITES in self.op.traits


@dataclass(frozen=True, eq=False)
class Iterations:
    """Two different iterations of a loop: values in ``varying`` may differ between them."""

    loop: Operation
    varying: Collection[Value]
    definitions: Definitions
    numbers: Mapping[Value, int] = field(default_factory=dict[Value, int])
    """Numbers of tiles, which grow with every iteration, and the axis that they count along."""


def find_accesses(op: Operation, definitions: Definitions) -> tuple[Access, ...]:
    """What an op itself touches; nothing for ops on values only, and barriers among threads.

    A barrier of a group of programs may touch anything, since nothing may move across it.
    """
    if isinstance(op, (ProgramBarrier, GridBarrier)):
        return ()
    if Trait.READS not in op.traits and Trait.WRITES not in op.traits:
        return ()
    if effects.is_elsewhere(op) or isinstance(op, GroupBarrier):
        return (Access(op, None),)
    if isinstance(op, (Load, Store, Atomic)):
        forms = tuple(find_affine(index, definitions) for index in op.indices)
        group = effects.alias_group(op.tensor)
        return (Access(op, group, op.tensor, op.indices, forms, Accessed.tile(op).tile.shape),)
    tensors = effects.tensor_operands(op)
    # Foreign code reaches memory through the tensors it is given.
    others = () if effects.is_pinned(op) else (Access(op, None),)
    return tuple(Access(op, effects.alias_group(tensor)) for tensor in tensors) or others


def accesses_in(region: Region, definitions: Definitions) -> Iterator[Access]:
    """All accesses of a region in program order."""
    for op in walk(region):
        yield from find_accesses(op, definitions)


def must_order(first: Access, second: Access, iterations: Iterations | None = None) -> bool:
    """Whether threads must meet between two accesses, the second later in program order.

    With ``iterations``, the accesses are made in two different iterations of a loop.
    """
    is_release = isinstance(second.op, Atomic) and second.op.releases
    if is_release or (isinstance(first.op, Atomic) and first.op.acquires):
        # One thread speaks for all: what the others did must come before, or after.
        return True
    kinds = {access.op.kind for access in (first, second) if isinstance(access.op, Atomic)}
    are_atomic = isinstance(first.op, Atomic) and isinstance(second.op, Atomic)
    # Of atomics that commute previous values may come out in another order; among programs they
    # do so anyway.
    do_commute = are_atomic and len(kinds) == 1 and kinds.isdisjoint(("xchg", "cas"))
    if do_commute or not may_conflict(first, second, iterations):
        return False
    if isinstance(second.op, Store) and isinstance(first.op, (Load, Store)):
        # A lane's own earlier access of the same element comes first in any case.
        return not is_same_place(first, second, iterations)
    return True


def may_conflict(first: Access, second: Access, iterations: Iterations | None = None) -> bool:
    """Whether one of two accesses may write an element that the other touches."""
    if not (first.writes or second.writes):
        return False
    may_alias = first.group is None or second.group is None or first.group == second.group
    return may_alias and not is_disjoint(first, second, iterations)


def _is_invariant(form: AffineIndex, iterations: Iterations | None) -> bool:
    return iterations is None or not any(value in iterations.varying for value, _ in form.base)


def _is_same_form(first: AffineIndex, second: AffineIndex) -> bool:
    is_same_base = first.terms == second.terms
    return is_same_base and replace(first, base=()) == replace(second, base=())


def is_same_place(first: Access, second: Access, iterations: Iterations | None = None) -> bool:
    """Whether each lane of both accesses is certain to touch the same element."""
    if first.tensor is not second.tensor or first.tensor is None or first.shape != second.shape:
        return False
    for lhs, rhs, form, other in zip(first.indices, second.indices, first.forms, second.forms):
        if form is None or other is None:
            is_same = lhs is rhs and (iterations is None or lhs not in iterations.varying)
        else:
            is_same = _is_same_form(form, other) and _is_invariant(form, iterations)
        if not is_same or lhs.tile.rank != rhs.tile.rank:
            return False
    return True


def is_disjoint(first: Access, second: Access, iterations: Iterations | None = None) -> bool:
    """Whether the two accesses are certain to touch no element in common."""
    if first.tensor is not second.tensor or first.tensor is None:
        return False
    forms = zip(first.forms, second.forms)
    known = [(lhs, rhs) for lhs, rhs in forms if lhs is not None and rhs is not None]
    if any(_are_apart(lhs, rhs, iterations) for lhs, rhs in known):
        return True
    return iterations is not None and _steps_apart(known, iterations)


def _are_apart(lhs: AffineIndex, rhs: AffineIndex, iterations: Iterations | None) -> bool:
    if _differ_by_residue(lhs, rhs):
        return True
    if lhs.terms != rhs.terms or not _is_invariant(lhs, iterations):
        return False
    first, second = _interval(lhs), _interval(rhs)
    if first is None or second is None:
        return False
    return first[1] < second[0] or second[1] < first[0]


def _differ_by_residue(lhs: AffineIndex, rhs: AffineIndex) -> bool:
    """Even and odd positions never meet, nor do other residues of a common step."""
    common = gcd(lhs.scale, rhs.scale, *(c for _, c in (*lhs.base, *rhs.base)))
    return common > 1 and (lhs.offset - rhs.offset) % common != 0


def _interval(form: AffineIndex) -> tuple[int, int] | None:
    """Smallest and largest position relative to the base; None when the length is unknown."""
    if form.axis is None or form.dim is None:
        return form.offset, form.offset
    length = form.dim.constant
    if length is None:
        return None
    last = form.offset + form.scale * (length - 1)
    return min(form.offset, last), max(form.offset, last)


def _steps_apart(forms: list[tuple[AffineIndex, AffineIndex]], iterations: Iterations) -> bool:
    """Whether every axis of the loop moves some index by at least the width of what is accessed."""
    loop = iterations.loop
    if not isinstance(loop, Loop) or not loop.rank:
        return False
    same = [lhs for lhs, rhs in forms if _is_same_form(lhs, rhs)]
    return all(any(_moves_with(form, i, iterations) for form in same) for i in range(loop.rank))


def _moves_with(form: AffineIndex, axis: int, iterations: Iterations) -> bool:
    loop = iterations.loop
    assert isinstance(loop, Loop)
    arg, numbers = loop.body.args[axis], iterations.numbers
    moved = {v: scale for v, scale in form.base if v is arg or numbers.get(v) == axis}
    if len(moved) != 1 or any(v in iterations.varying for v, _ in form.base if v not in moved):
        return False
    ((value, coefficient),) = moved.items()
    if form.axis is None:
        return True
    if loop.blocks[axis] and value is arg:
        return form.dim == Dim.of(loop.blocks[axis]) and form.scale == coefficient
    steps = () if loop.blocks[axis] else loop.steps[loop.blocks[:axis].count("") :]
    op = iterations.definitions.get(steps[0]) if steps else None
    step = int(op.value) if isinstance(op, Full) else 1  # the least possible
    interval = _interval(form)
    return interval is not None and interval[1] - interval[0] < abs(coefficient) * step
