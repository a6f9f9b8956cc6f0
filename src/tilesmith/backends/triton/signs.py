"""Integers that are never negative: for them Triton's truncating division is floor division."""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, TileIndex
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import TensorType
from tilesmith.ir.values import Value

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
