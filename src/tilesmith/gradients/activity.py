"""Which values of a function depend on the tensors that gradients are wanted of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import If, Loop, While
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import TileType, Value


@dataclass
class Activity:
    """Grows to a fixed point; ``values`` are the ones with a gradient."""

    tensors: Collection[Value]
    constants: Collection[Value] = ()
    """Values that results do not depend on, though they are computed from the tensors."""
    values: set[Value] = field(default_factory=set[Value])
    takes_all: bool = False
    """Whether integers count, which have no gradient but may be the bits of something."""

    def visit(self, region: Region) -> None:
        """Follow values through a region in program order."""
        for op in region.ops:
            self._visit_op(op)

    def _visit_op(self, op: Operation) -> None:
        if isinstance(op, Loop):
            self._visit_loop(op)
        elif isinstance(op, While):
            self._follow(op.init, op.body.args)
            self._settle(op.body, op.body.args)
            self._follow((*op.init, *op.body.yielded), op.results * 2)
        elif isinstance(op, If):
            for branch in (op.then, op.otherwise):
                self.visit(branch)
                self._follow(branch.yielded, op.results)
        elif isinstance(op, Load):
            if op.tensor in self.tensors:
                self._mark(op.result)
        else:
            if any(value in self.values for value in op.operand_values()):
                for result in op.results:
                    self._mark(result)
            for region in op.regions():
                self.visit(region)

    def _visit_loop(self, op: Loop) -> None:
        self._follow(op.init, op.carried)
        self._settle(op.body, op.carried)
        self._follow((*op.init, *op.body.yielded), op.results * 2)

    def _settle(self, body: Region, carried: tuple[Value, ...]) -> None:
        before = -1
        while before != len(self.values):
            before = len(self.values)
            self.visit(body)
            self._follow(body.yielded, carried)

    def _follow(self, sources: tuple[Value, ...], targets: tuple[Value, ...]) -> None:
        for source, target in zip(sources, targets):
            if source in self.values:
                self._mark(target)

    def _mark(self, value: Value) -> None:
        is_tile = isinstance(value.type, TileType)
        if (
            is_tile
            and (self.takes_all or value.tile.dtype.is_float)
            and value not in self.constants
        ):
            self.values.add(value)


def find_active(
    function: Function, tensors: Collection[Value], constants: Collection[Value] = ()
) -> set[Value]:
    """Float tiles that depend on what is loaded from ``tensors``, other than ``constants``."""
    activity = Activity(tensors, constants)
    activity.visit(function.body)
    return activity.values


def find_reinterpreted(function: Function, tensors: Collection[Value]) -> Cast | None:
    """Floats that are made of the bits of integers, which are made of what is loaded."""
    activity = Activity(tensors, takes_all=True)
    activity.visit(function.body)
    casts = (op for op in walk(function.body) if isinstance(op, Cast) and op.bitcast)
    found = (op for op in casts if op.dtype.is_float and op.x in activity.values)
    return next(found, None)
