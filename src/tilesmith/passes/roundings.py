"""Roundings of a function: none of them (all in fp64), some kept, those of GPU code made explicit.

Tensors that are only read keep their type under ``widen_floats``; those that are written become
fp64. Of what GPUs round and the plain meaning of ops does not, two grow without bound: exponentials
go through powers of two, and products in tf32 drop the last thirteen bits of their operands.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilesmith.analysis.effects import AliasGroup, alias_group, groups_written_by, is_elsewhere
from tilesmith.dtypes import F32, F64, I8, I16, I32, DType
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import If, Loop, While
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.foreign import Assert, Breakpoint, InlineAsm, InlineTriton, Print
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.reduction import Reduce, ReduceKind, Scan
from tilesmith.ir.traversal import Definitions, apply_rules, rewrite_function, walk, walk_function
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


_SUMS = (ReduceKind.SUM.value, ReduceKind.PROD.value)
_WIDEST_BITS = 64


@dataclass(frozen=True, eq=False)
class Rounding:
    """One op that rounds."""

    op: Operation
    is_sum: bool
    """Whether it is a step of a sum: a product of matrices, or part of what a loop carries on."""
    results: frozenset[str]
    """Tensors that get the rounded value itself, and that nothing is loaded from."""
    name: str = ""
    """The user's variable for it, or a tensor that it is stored to."""

    @property
    def value(self) -> Value:
        """What is rounded."""
        return self.op.result

    @property
    def dtype(self) -> DType:
        """What it is rounded to."""
        return self.op.result.tile.dtype


def find_roundings(function: Function) -> tuple[Rounding, ...]:
    """All roundings of a function, in program order."""
    ops = list(walk_function(function))
    users: dict[Value, list[Operation]] = {}
    for op in ops:
        for value in _inputs(op):
            users.setdefault(value, []).append(op)
    carried = {value for op in ops for value in _carried_on(op)}
    loaded = {op.tensor for op in ops if isinstance(op, Load)}
    found: list[Rounding] = []
    for op in _ops_of(function.body):
        if _is_rounding(op):
            targets, name = _destinations(op.result, users)
            results = frozenset(tensor.name for tensor in targets if tensor not in loaded)
            # Of a wide sum the terms are rounded as they are added, rather than the sum in the end.
            is_wide = not op.result.tile.dtype.is_low_precision_float
            is_sum = is_wide and isinstance(op, (Dot, Reduce, Scan))
            found.append(Rounding(op, op.result in carried or is_sum, results, name))
    return tuple(found)


def _ops_of(region: Region) -> Iterator[Operation]:
    """All ops but those inside combinations of the user's own, which are sums as a whole."""
    for op in region.ops:
        yield op
        if isinstance(op, (Loop, While, If)) or not op.results:
            for inner in op.regions():
                yield from _ops_of(inner)


def _is_rounding(op: Operation) -> bool:
    if len(op.results) != 1 or not isinstance(op.result.type, TileType):
        return False
    dtype = op.result.tile.dtype
    if not dtype.is_float or dtype.bits == _WIDEST_BITS:
        return False
    if isinstance(op, Cast):
        return not op.bitcast and not op.x.tile.dtype.is_held_by(dtype)
    if isinstance(op, Elementwise):
        return not op.function.is_exact
    return isinstance(op, Dot) or (isinstance(op, (Reduce, Scan)) and op.kind in _SUMS)


def _destinations(value: Value, users: Mapping[Value, list[Operation]]) -> tuple[set[Value], str]:
    """The tensors that a value is stored to as it is, and the first name it has on the way."""
    found: set[Value] = set()
    waiting = [value]
    for current in waiting:
        for op in users.get(current, []):
            if isinstance(op, Store) and op.value is current:
                found.add(op.tensor)
            waiting += [v for v in _passed_on(op, current) if v not in waiting]
    names = [v.name for v in waiting] + sorted(tensor.name for tensor in found)
    return found, next(filter(None, names), "")


def _passed_on(op: Operation, value: Value) -> tuple[Value, ...]:
    if Trait.VIEW in op.traits:
        return op.results
    if not isinstance(op, If):
        return ()
    yields = [branch.yielded for branch in op.regions()]
    return tuple(r for i, r in enumerate(op.results) if any(y[i] is value for y in yields))


def _carried_on(loop: Operation) -> Iterator[Value]:
    """Values that a loop computes from what it carries and carries on itself."""
    if not isinstance(loop, (Loop, While)):
        return
    ops = list(walk(loop.body))
    args = loop.carried if isinstance(loop, Loop) else loop.body.args
    for arg, end in zip(args, loop.body.yielded):
        reached, reaching = {arg}, {end}
        for op in ops:
            if not reached.isdisjoint(_inputs(op)):
                reached.update(op.results)
        for op in reversed(ops):
            if not reaching.isdisjoint(op.results):
                reaching.update(_inputs(op))
        yield from reached & reaching


def _inputs(op: Operation) -> Iterator[Value]:
    """What an op uses; what a branch yields is what the whole op gives."""
    yield from op.operand_values()
    if isinstance(op, If):
        for branch in op.regions():
            yield from branch.yielded


_INTEGERS = {dtype.bits: dtype for dtype in (I8, I16, I32)}


def keep_roundings(function: Function, kept: Collection[Value]) -> Function:
    """Make ``widen_floats`` round these values to the type they have here.

    Before::

        %b = cast(%a) : bf16[tile]

    After::

        %c = cast(%a) : bf16[tile]
        %d = cast(%c) {bitcast=true} : i16[tile]
        %b = cast(%d) {bitcast=true} : bf16[tile]
    """

    def rewrite(op: Operation) -> Operation | list[Operation]:
        return _spell_out(op) if op.results and op.results[0] in kept else op

    return rewrite_function(function, rewrite)


def _spell_out(op: Operation) -> list[Operation]:
    value = op.result
    rounded = value.like()
    bits = value.like(value.tile.with_dtype(_INTEGERS[value.tile.dtype.bits]))
    return [
        replace(op, results=(rounded,)),
        Cast(x=rounded, bitcast=True, results=(bits,), loc=op.loc),
        Cast(x=bits, bitcast=True, results=(value,), loc=op.loc),
    ]


_LOG2_E = 1 / math.log(2)
_KEPT_BITS = -(1 << 13)
"""As a mask: what tf32 keeps of an fp32."""


def round_like_gpu(function: Function) -> Function:
    """Spell ops of fp32 as GPUs compute them.

    Before::

        %b = elementwise(%a) {fn="exp"} : f32[tile]

    After::

        %c = full() {value=1.4426950408889634} : f32[tile]
        %d = elementwise(%a, %c) {fn="mul"} : f32[tile]
        %b = elementwise(%d) {fn="exp2"} : f32[tile]
    """
    return apply_rules(function, (_spell_exponential, _round_operands))


def _spell_exponential(op: Operation, defined_by: Definitions) -> list[Operation] | None:
    if not isinstance(op, Elementwise) or op.fn != "exp" or op.result.tile.dtype != F32:
        return None
    factor, power = op.result.like(), op.result.like()
    return [
        Full(value=_LOG2_E, results=(factor,), loc=op.loc),
        Elementwise(args=(op.args[0], factor), fn="mul", results=(power,), loc=op.loc),
        Elementwise(args=(power,), fn="exp2", results=op.results, loc=op.loc),
    ]


def _round_operands(op: Operation, defined_by: Definitions) -> list[Operation] | None:
    if not isinstance(op, Dot) or op.precision != "tf32" or op.lhs.tile.dtype != F32:
        return None
    ops: list[Operation] = []
    lhs, rhs = _round(op.lhs, ops), _round(op.rhs, ops)
    rounded = Dot(lhs=lhs, rhs=rhs, acc=op.acc, precision="ieee", results=op.results, loc=op.loc)
    return [*ops, rounded]


def _round(value: Value, ops: list[Operation]) -> Value:
    integer = value.tile.with_dtype(I32)
    bits, mask, kept = value.like(integer), value.like(integer), value.like(integer)
    result = value.like()
    ops += [
        Cast(x=value, bitcast=True, results=(bits,), loc=value.loc),
        Full(value=_KEPT_BITS, results=(mask,), loc=value.loc),
        Elementwise(args=(bits, mask), fn="and", results=(kept,), loc=value.loc),
        Cast(x=kept, bitcast=True, results=(result,), loc=value.loc),
    ]
    return result
