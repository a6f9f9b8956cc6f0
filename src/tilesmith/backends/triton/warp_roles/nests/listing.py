"""A loop over tiles inside of a loop over a list: blocks of keys that a mask names, pages.

The outer loop goes over the entries of a list, the inner one over the positions of one block, as
many for each. So both are one loop for warps with roles: turn ``t`` is turn ``t % n`` of entry
``t // n``, and the products of one block are in flight while the next one begins. Where a block
lies is loaded by each role for itself; the one that copies runs ahead, so it does not wait for it.

An entry names a block that is there: of one past the end the source would run no turn, and this
runs turns of zeros.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from typing_extensions import override

from tilesmith.backends.triton.warp_roles.inner_ends import Bounds
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Loop, Yield
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.types import Extent, Value

Definitions = Mapping[Value, Operation]


@dataclass(frozen=True)
class ListedBounds(Bounds):
    """What is known of where blocks of a list end."""

    whole: Value
    """Where one ends that is whole, as all tiles of it are."""

    @override
    def is_cut(self, end: Value, size: Extent) -> bool:
        return end is self.whole or super().is_cut(end, size)


@dataclass(frozen=True)
class Listing:
    """Two loops as one."""

    outer: Loop
    """Over the entries of the list."""
    inner: Loop
    """Over the tiles of one block."""
    loop: Loop
    """Over the tiles of all blocks: the inner one, with what the outer one begins and ends with."""
    size: int
    """Positions of a block."""
    last: int
    """Those of the last block, which may end before."""
    end: Value
    """Where a whole block ends."""

    @property
    def scalars(self) -> tuple[Operation, ...]:
        """What tells where the block of an entry lies."""
        return self.outer.body.ops[: self.outer.body.ops.index(self.inner)]

    def bounds(self, sides: Container[str], rows: str, first: Value, known: Definitions) -> Bounds:
        """What is known of where its loops end, and those around."""
        return ListedBounds(sides, rows, first, known, self.end)

    def allows(self, step: int) -> bool:
        """Whether all blocks have as many steps, the last one too."""
        return self.size % step == 0 and -(-self.last // step) == self.size // step

    def largest_step(self, most: int) -> int:
        """The widest step of a power of two that it allows, the whole block otherwise."""
        while most > 1 and not self.allows(most):
            most //= 2
        return most if most > 1 else self.size


def find_listing(outer: Loop, defining: Definitions) -> Listing | str | None:
    """How two loops are one, or why they are not; None where there is only one."""
    loops = [op for op in outer.body.ops if isinstance(op, Loop)]
    if outer.rank != 1 or outer.blocks[0] or len(loops) != 1:
        return None
    (inner,) = loops
    *scalars, last = outer.body.ops
    scalars.remove(inner)
    if not _is_counted(outer, defining) or inner.rank != 1 or outer.is_ordered:
        return "its outer loop does not go over a list one by one"
    if not all(map(_is_scalar, scalars)):
        return "between its loops it computes more than where a block lies"
    is_handed_on = isinstance(last, Yield) and last.values == inner.results
    if not is_handed_on or inner.init != outer.carried:
        return "its inner loop does not go on with what the one before has left"
    found = _find_block(inner, defining)
    if found is None:
        return "its inner loop does not have the same length for every entry of a list"
    loop = replace(inner, init=outer.init, results=outer.results)
    return Listing(outer, inner, loop, *found)


def _is_counted(outer: Loop, defining: Definitions) -> bool:
    step = defining.get(outer.steps[0])
    return isinstance(step, Full) and step.value == 1


def _is_scalar(op: Operation) -> bool:
    is_number = all(not value.tile.rank for value in op.results)
    return bool(op.results) and is_number and not op.regions()


def _find_block(inner: Loop, defining: Definitions) -> tuple[int, int, Value] | None:
    """Positions of a block, of the last one, and where whole ones end."""
    (begin,), (end,) = inner.begins, inner.ends
    size = _distance(begin, end, defining)
    if size is not None:
        return size, size, end
    op = defining.get(end)
    if not isinstance(op, Elementwise) or op.fn != "minimum":
        return None
    for whole, most in (op.args, tuple(reversed(op.args))):
        size, total = _distance(begin, whole, defining), _constant(most, defining)
        if size is not None and total is not None and _is_multiple(begin, size, defining):
            return size, total % size or size, whole
    return None


def _distance(begin: Value, end: Value, defining: Definitions) -> int | None:
    first, last, op = _constant(begin, defining), _constant(end, defining), defining.get(end)
    if first is not None and last is not None:
        return last - first if last > first else None
    if not isinstance(op, Elementwise) or op.fn != "add" or begin not in op.args:
        return None
    (other,) = (arg for arg in op.args if arg is not begin)
    return _constant(other, defining)


def _is_multiple(begin: Value, size: int, defining: Definitions) -> bool:
    op = defining.get(begin)
    is_product = isinstance(op, Elementwise) and op.fn == "mul"
    factors: Iterable[Value] = op.args if isinstance(op, Elementwise) and is_product else (begin,)
    return any((_constant(factor, defining) or 1) % size == 0 for factor in factors)


def _constant(value: Value, defining: Definitions) -> int | None:
    op = defining.get(value)
    return int(op.value) if isinstance(op, Full) else None
