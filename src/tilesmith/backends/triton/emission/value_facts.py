"""What is known of values: signs and multiples of indices, and where a rounding can be seen.

A rounding more or less is visible in half types, and in fp32 that becomes half at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from tilesmith.dtypes import F32
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, TileIndex
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.traversal import definitions, walk_function
from tilesmith.ir.types import Dim, TensorType, Value
from tilesmith.schedule.schedule import Schedule


def find_rounded_values(function: Function) -> frozenset[Value]:
    """Values whose every use is a cast to a float of 16 bits or less."""
    rounded: set[Value] = set()
    others: set[Value] = set()
    for op in walk_function(function):
        is_rounding = isinstance(op, Cast) and not op.bitcast and op.dtype.is_low_precision_float
        (rounded if is_rounding else others).update(op.operand_values())
    return frozenset(rounded - others)


def rounds_visibly(function: Function) -> bool:
    """Whether fusing a multiply with an add would be seen: it rounds once where eager does twice.

    In fp32 the difference is the last bit and every GPU compiler takes it; in half types it is a
    visible part of the result, and fp64 is asked for by those who compare bits.
    """
    return any(
        isinstance(op, Elementwise)
        and op.fn in ("add", "sub", "mul")
        and op.result.tile.dtype.is_float
        and op.result.tile.dtype != F32
        for op in walk_function(function)
    )


class Multiples:
    """Known divisors of the scalars of one function under one schedule; 0 is a multiple of all."""

    def __init__(self, function: Function, schedule: Schedule) -> None:
        self._schedule = schedule
        self._definitions = definitions(function.body)
        self._loops: dict[Value, tuple[Grid | Loop, int]] = {
            arg: (op, position)
            for op in walk_function(function)
            if isinstance(op, (Grid, Loop))
            for position, arg in enumerate(op.body.args[: len(op.blocks)])
        }

    def of(self, value: Value) -> int:
        """A number that ``value`` is a multiple of; 0 if it is zero itself."""
        if value in self._loops:
            loop, position = self._loops[value]
            return gcd(self.of(loop.begins[position]), self._step(loop, position))
        op = self._definitions.get(value)
        if isinstance(op, Full) and isinstance(op.value, int):
            return abs(int(op.value))
        if isinstance(op, BlockSize):
            return self._schedule.physical(Dim.of(op.block))
        if isinstance(op, Cast):
            return self.of(op.x) if op.x.tile.dtype.is_integer else 1
        if isinstance(op, Elementwise) and op.fn in ("add", "sub"):
            return gcd(*map(self.of, op.args))
        if isinstance(op, Elementwise) and op.fn == "mul":
            return self.of(op.args[0]) * self.of(op.args[1])
        return 1

    def _step(self, loop: Grid | Loop, position: int) -> int:
        block = loop.blocks[position]
        return self._schedule.physical(Dim.of(block)) if block else 1


_KEEPING = {"add", "mul", "floordiv", "truncdiv", "fmod", "minimum", "and", "or", "shr"}


class Signs:
    """Answers for one function."""

    def __init__(self, function: Function, definitions: Mapping[Value, Operation]) -> None:
        self._definitions = definitions
        self._known = {value: True for value in _sizes(function)}
        for op in walk_function(function):
            if isinstance(op, (Grid, Loop)):
                for arg, begin in zip(op.body.args, op.begins):
                    # Loops ascend, so the first index bounds the others from below.
                    self._known[arg] = self.is_non_negative(begin)

    def is_non_negative(self, value: Value) -> bool:
        """Whether no lane is below zero, index arithmetic being assumed not to wrap."""
        if value not in self._known:
            self._known[value] = self._derive(value)
        return self._known[value]

    def _derive(self, value: Value) -> bool:
        op = self._definitions.get(value)
        if isinstance(op, (Arange, BlockSize)):
            return True
        if isinstance(op, Full):
            return op.value >= 0
        if isinstance(op, TileIndex):
            return self.is_non_negative(op.begin)
        if isinstance(op, (Cast, ExpandDims, Broadcast, Permute, Reshape)):
            return op.x.tile.dtype.is_integer and self.is_non_negative(op.x)
        return isinstance(op, Elementwise) and self._derive_elementwise(op)

    def _derive_elementwise(self, op: Elementwise) -> bool:
        signs = [self.is_non_negative(arg) for arg in op.args]
        if op.fn == "mod":
            return signs[1]
        if op.fn == "maximum":
            return any(signs)
        return all(signs) and op.fn in _KEEPING


def _sizes(function: Function) -> list[Value]:
    """Scalar parameters that are extents of tensors or of tile dimensions."""
    extents = {size.name for size in function.sizes}
    for parameter in function.parameters:
        if isinstance(parameter.value.type, TensorType):
            extents.update(e for e in parameter.value.type.shape if isinstance(e, str))
    return [p.value for p in function.parameters if p.value.name in extents]
