"""The same function with every float in fp64: what it computes but for rounding.

Tensors that are only read, scalars and constants keep their type and are converted where they are
used; tensors that are written become fp64 tensors, for which the caller makes the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesmith.analysis.effects import AliasGroup, alias_group, groups_written_by, is_elsewhere
from tilesmith.dtypes import F64, DType
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.foreign import Assert, Breakpoint, InlineAsm, InlineTriton, Print
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.types import TensorType, TileType, Value


class CannotWidenError(Exception):
    """There is no fp64 form of a function; says why."""


def widen_floats(function: Function) -> Function:
    """Compute in fp64 what the function computes in narrower floats.

    Bits of a float are those of its value rounded to the type that the function has there.

    Before::

        %a = load(%x, %i) : bf16[tile]
        %b = cast(%a) : f32[tile]
        %c = elementwise(%b) {fn="exp"} : f32[tile]

    After::

        %a = load(%x, %i) : bf16[tile]
        %b = cast(%a) : f64[tile]
        %c = elementwise(%b) {fn="exp"} : f64[tile]
    """
    return _Widener(function).widened()


class _Widener:
    """Rebuilds a function; ``_new`` holds what stands for each of its values."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._written = groups_written_by(function)
        self._new: dict[Value, Value] = {}
        self._ops: list[Operation] = []

    def widened(self) -> Function:
        self._check_memory()
        parameters = tuple(map(self._parameter, self._function.parameters))
        # Conversions of scalar parameters were made before there was a region to put them in.
        body = self._region(self._function.body, self._ops)
        return replace(self._function, parameters=parameters, body=body)

    def _check_memory(self) -> None:
        dtypes: dict[AliasGroup, set[DType]] = {}
        for parameter in self._function.parameters:
            if isinstance(parameter.value.type, TensorType):
                group = alias_group(parameter.value)
                dtypes.setdefault(group, set()).add(parameter.value.type.dtype)
        for group in self._written:
            found = dtypes.get(group, set())
            if len(found) > 1 and any(dtype.is_float for dtype in found):
                raise CannotWidenError("memory that is written is seen under two element types")

    def _parameter(self, parameter: Parameter) -> Parameter:
        old = parameter.value
        if isinstance(old.type, TensorType):
            is_wide = old.type.dtype.is_float and alias_group(old) in self._written
            self._new[old] = old.like(replace(old.type, dtype=F64)) if is_wide else old
            return replace(parameter, value=self._new[old])
        self._new[old] = self._convert(old)
        return parameter

    def _region(self, region: Region, first: Sequence[Operation] = ()) -> Region:
        outer, self._ops = self._ops, [*first]
        args = tuple(map(self._define, region.args))
        for op in region.ops:
            self._rewrite(op)
        inner, self._ops = self._ops, outer
        return Region(args, tuple(inner))

    def _rewrite(self, op: Operation) -> None:
        if isinstance(op, (InlineAsm, InlineTriton)):
            raise CannotWidenError("it has code for one backend, which only that can run")
        if is_elsewhere(op):
            raise CannotWidenError("it goes to memory by address")
        if isinstance(op, (Print, Breakpoint, Assert)):
            return
        is_read_only = isinstance(op, Load) and alias_group(op.tensor) not in self._written
        if isinstance(op, Cast):
            self._rewrite_cast(op)
        elif isinstance(op, Full) or is_read_only:
            self._convert_result(op.with_operands(self._new.__getitem__))
        else:
            self._rewrite_any(op)

    def _rewrite_any(self, op: Operation) -> None:
        inner = tuple(self._region(region) for region in op.regions())
        copy = op.with_operands(self._new.__getitem__).with_regions(inner)
        results = tuple(map(self._define, op.results))
        self._ops.append(replace(copy, results=results))

    def _rewrite_cast(self, op: Cast) -> None:
        is_float = op.x.tile.dtype.is_float
        if op.bitcast:
            x = self._new[op.x]
            self._convert_result(replace(op, x=self._cast(x, op.x.tile) if is_float else x))
        elif is_float and op.dtype.is_float:
            self._new[op.result] = self._new[op.x]
        else:
            self._rewrite_any(op)

    def _convert_result(self, op: Operation) -> None:
        """An op that gives what the function gives there, converted afterwards."""
        result = op.result.like()
        self._ops.append(replace(op, results=(result,)))
        self._new[op.result] = self._convert(result)

    def _convert(self, value: Value) -> Value:
        if not value.tile.dtype.is_float or value.tile.dtype == F64:
            return value
        return self._cast(value, value.tile.with_dtype(F64))

    def _cast(self, value: Value, target: TileType) -> Value:
        if value.type == target:
            return value
        result = value.like(target)
        self._ops.append(Cast(x=value, results=(result,), loc=value.loc))
        return result

    def _define(self, old: Value) -> Value:
        is_float = isinstance(old.type, TileType) and old.type.dtype.is_float
        self._new[old] = old.like(old.tile.with_dtype(F64) if is_float else old.type)
        return self._new[old]
