"""Parallel loops, sequential loops and branches. Values leave a region through its ``yield``."""

from __future__ import annotations

from typing_extensions import override

from tilesmith.dtypes import I32
from tilesmith.ir.axis_roles import Carried, Uniform
from tilesmith.ir.operation import (
    Operation,
    Region,
    Trait,
    attribute,
    op,
    operand,
    operands,
    region,
)
from tilesmith.ir.types import Value


@op("yield", Trait.TERMINATOR, num_results=0, axes=Carried())
class Yield(Operation):
    """End a region, handing values to the enclosing op."""

    values: tuple[Value, ...] = operands()


@op("grid", Trait.NONE, num_results=0, axes=Carried())
class Grid(Operation):
    """A top-level device loop: independent programs over the product of ``[begin, end)`` ranges.

    ``blocks[i]`` names the block that axis ``i`` steps by, or is "" for an axis of plain indices
    that steps by 1. The region's arguments are the first index of each axis's tile. ``slot``
    numbers the loops of a kernel.
    """

    begins: tuple[Value, ...] = operands()
    ends: tuple[Value, ...] = operands()
    blocks: tuple[str, ...] = attribute()
    slot: int = attribute(default=-1)
    body: Region = region()

    @override
    def verify(self) -> str | None:
        return _verify_ranges(self.begins, self.ends, self.blocks, self.body.args)


@op("grid_barrier", Trait.READS | Trait.WRITES, num_results=0, axes=Uniform())
class GridBarrier(Operation):
    """Between two grids: all programs before it end, and what they wrote is seen by all after."""


MOST_IN_GROUP = 32
"""Programs of a group. Those that wait keep others from starting, so there must be room."""
LEAST_SMS_FOR_GROUPS = 2 * MOST_IN_GROUP
"""Multiprocessors of a device that has room: each runs at least one program."""


@op("group_barrier", Trait.READS | Trait.WRITES, num_results=0, axes=Uniform())
class GroupBarrier(Operation):
    """Inside a grid: wait until as many programs as ``arrivals`` have come here.

    They are counted at ``counts[place]``, zero at the start of a launch; the last element is no
    place but left to backends, to number programs with. What each of them stored before it is seen
    by all of them after it. Counts are never set back, so a second barrier over the same ones is
    given twice the number. A group has at most ``MOST_IN_GROUP`` programs, which are neighbours in
    the order of the grid.
    """

    counts: Value = operand()
    place: Value = operand()
    arrivals: Value = operand()

    @override
    def verify(self) -> str | None:
        if self.counts.tensor.dtype != I32 or self.counts.tensor.rank != 1:
            return "counts must be a tensor of i32 of rank 1"
        for scalar in (self.place, self.arrivals):
            if scalar.tile.rank or not scalar.tile.dtype.is_integer:
                return "place and arrivals must be integer scalars"
        return None


@op("loop", Trait.NONE, num_results=None, axes=Carried())
class Loop(Operation):
    """A sequential loop inside a program, in ascending order, carrying ``init``.

    As ``Grid``, with ``steps[i]`` the step of an axis without a block. Region arguments are the
    first index of each axis's tile, then the carried values. ``is_ordered`` marks loops whose
    loads must not be started before the stores of an earlier iteration (no software pipelining).
    """

    begins: tuple[Value, ...] = operands()
    ends: tuple[Value, ...] = operands()
    steps: tuple[Value, ...] = operands()
    init: tuple[Value, ...] = operands()
    blocks: tuple[str, ...] = attribute()
    slot: int = attribute(default=-1)
    is_ordered: bool = attribute(default=False)
    body: Region = region()

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.blocks)

    @property
    def carried(self) -> tuple[Value, ...]:
        """The region's arguments that hold the carried values."""
        return self.body.args[self.rank :]

    @override
    def verify(self) -> str | None:
        if len(self.steps) != sum(not block for block in self.blocks):
            return "one step is needed for each axis without a block"
        if len(self.results) != len(self.init) or len(self.carried) != len(self.init):
            return "initial values, carried arguments and results differ in number"
        for before, after in zip(self.init, self.results):
            if before.type != after.type:
                return f"carried value changes from {before.type} to {after.type}"
        return _verify_ranges(self.begins, self.ends, self.blocks, self.body.args[: self.rank])


@op("while", Trait.NONE, num_results=None, axes=Carried())
class While(Operation):
    """Repeat ``body`` while ``condition`` (it yields one bool scalar) holds, carrying ``init``."""

    init: tuple[Value, ...] = operands()
    condition: Region = region()
    body: Region = region()


@op("if", Trait.NONE, num_results=None, axes=Carried())
class If(Operation):
    """A branch on a scalar; both regions yield the results."""

    condition: Value = operand()
    then: Region = region()
    otherwise: Region = region()

    @override
    def verify(self) -> str | None:
        for branch in (self.then, self.otherwise):
            types = [value.type for value in branch.yielded]
            if types != [value.type for value in self.results]:
                return "a branch does not yield the results' types"
        return None if self.condition.tile.rank == 0 else "the condition must be a scalar"


def _verify_ranges(
    begins: tuple[Value, ...],
    ends: tuple[Value, ...],
    blocks: tuple[str, ...],
    args: tuple[Value, ...],
) -> str | None:
    if not len(begins) == len(ends) == len(blocks) == len(args):
        return "begins, ends, blocks and region arguments differ in number"
    if any(value.tile.rank for value in (*begins, *ends)):
        return "loop bounds must be scalars"
    return None
