"""Roundings that stay when everything else becomes fp64: they are spelled as bits.

Together with ``widen_floats`` this gives a function with any choice of its own roundings;
``find_roundings`` lists them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tilesmith.dtypes import I8, I16, I32, DType
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import If, Loop, While
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.reduction import Reduce, ReduceKind, Scan
from tilesmith.ir.traversal import rewrite_function, walk, walk_function
from tilesmith.ir.types import TileType, Value

_EXACT = {"neg", "abs", "floor", "ceil", "round", "trunc", "maximum", "minimum", "where", "fmod"}
_SUMS = (ReduceKind.SUM.value, ReduceKind.PROD.value)
_WIDEST_BITS = 64

Users = Mapping[Value, list[Operation]]


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
        return self.value.tile.dtype


def find_roundings(function: Function) -> tuple[Rounding, ...]:
    """All roundings of a function, in program order."""
    users = _find_users(function)
    carried = set(_carried_on(function))
    loaded = {op.tensor for op in walk_function(function) if isinstance(op, Load)}
    found: list[Rounding] = []
    for op in _ops_of(function.body):
        if _is_rounding(op):
            targets, name = _destinations(op.result, users)
            results = frozenset(tensor.name for tensor in targets if tensor not in loaded)
            is_sum = op.result in carried or _is_wide_sum(op)
            found.append(Rounding(op, is_sum, results, name))
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
        return not op.bitcast and not _holds(dtype, op.x.tile.dtype)
    if isinstance(op, Elementwise):
        return op.fn not in _EXACT
    return isinstance(op, Dot) or (isinstance(op, (Reduce, Scan)) and op.kind in _SUMS)


def _holds(dtype: DType, source: DType) -> bool:
    """Whether a float type has all values of another type."""
    is_narrower_range = source.is_float and source.bits == dtype.bits and source != dtype
    return source.precision <= dtype.precision and not is_narrower_range


def _is_wide_sum(op: Operation) -> bool:
    """Whether the rounding is that of the terms added up, rather than of their sum in the end."""
    is_sum = isinstance(op, (Dot, Reduce, Scan))
    return is_sum and not op.result.tile.dtype.is_low_precision_float


def _find_users(function: Function) -> dict[Value, list[Operation]]:
    users: dict[Value, list[Operation]] = {}
    for op in walk_function(function):
        for value in _inputs(op):
            users.setdefault(value, []).append(op)
    return users


def _destinations(value: Value, users: Users) -> tuple[set[Value], str]:
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


def _carried_on(function: Function) -> Iterator[Value]:
    """Values that a loop computes from what it carries and carries on itself."""
    for op in walk_function(function):
        if isinstance(op, Loop):
            yield from _between(op.body, op.carried, op.body.yielded)
        elif isinstance(op, While):
            yield from _between(op.body, op.body.args, op.body.yielded)


def _between(region: Region, args: Iterable[Value], yielded: Iterable[Value]) -> set[Value]:
    ops = list(walk(region))
    found: set[Value] = set()
    for arg, end in zip(args, yielded):
        found |= _reached(ops, {arg}) & _reaching(ops, {end})
    return found


def _reached(ops: list[Operation], start: set[Value]) -> set[Value]:
    known = set(start)
    for op in ops:
        if any(value in known for value in _inputs(op)):
            known.update(op.results)
    return known


def _reaching(ops: list[Operation], end: set[Value]) -> set[Value]:
    known = set(end)
    for op in reversed(ops):
        if any(value in known for value in op.results):
            known.update(_inputs(op))
    return known


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
