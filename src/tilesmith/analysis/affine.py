"""Index tiles as ``sum(coefficient * scalar) + offset + scale * [0, 1, ...)`` along one axis.

Block pointers, tensor descriptors and the analysis of memory conflicts ask for this form.
Arithmetic is that of unbounded integers: index arithmetic is assumed not to wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tilesmith.ir.axis_roles import AxisForm, Inserted, Numbered, Permuted, Repeated, Reshaped
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.types import Dim, Value

Term = tuple[Value, int]
"""A scalar value and its coefficient."""


@dataclass(frozen=True)
class AffineIndex:
    """``sum(c * v for v, c in base) + offset + scale * k`` with ``k`` the lane along ``axis``.

    ``axis`` counts within the index tile's own shape; it is None, and ``scale`` 0, when all
    lanes are equal. ``dim`` is that axis's dimension: a block for tiles, a constant or runtime
    size for slices.
    """

    axis: int | None = None
    dim: Dim | None = None
    base: tuple[Term, ...] = ()
    offset: int = 0
    scale: int = 0

    @property
    def is_contiguous(self) -> bool:
        """Whether neighbouring lanes index neighbouring elements."""
        return self.scale == 1

    @property
    def terms(self) -> frozenset[Term]:
        """The base without its order."""
        return frozenset(self.base)


def find_affine(value: Value, definitions: Mapping[Value, Operation]) -> AffineIndex | None:
    """The affine form of an integer tile, if it has one."""
    if not value.tile.dtype.is_integer:
        return None
    op = definitions.get(value)
    found = None
    if op is not None:
        rule = _VALUE_RULES.get(type(op)) or _RULES.get(type(op.form))
        found = rule(op, definitions) if rule else None
    if found is None and value.tile.rank == 0:
        return AffineIndex(base=((value, 1),))
    return found


def _join_terms(lhs: tuple[Term, ...], rhs: tuple[Term, ...]) -> tuple[Term, ...]:
    total = dict(lhs)
    for value, coefficient in rhs:
        total[value] = total.get(value, 0) + coefficient
    return tuple((value, coefficient) for value, coefficient in total.items() if coefficient)


def _add(lhs: AffineIndex, rhs: AffineIndex) -> AffineIndex | None:
    if lhs.axis is not None and rhs.axis is not None and lhs.axis != rhs.axis:
        return None
    axis, dim = (lhs.axis, lhs.dim) if lhs.axis is not None else (rhs.axis, rhs.dim)
    scale = lhs.scale + rhs.scale
    if scale == 0:
        axis, dim = None, None
    return AffineIndex(axis, dim, _join_terms(lhs.base, rhs.base), lhs.offset + rhs.offset, scale)


def _multiply(index: AffineIndex, factor: int) -> AffineIndex:
    if factor == 0:
        return AffineIndex()
    base = tuple((value, coefficient * factor) for value, coefficient in index.base)
    return replace(index, base=base, offset=index.offset * factor, scale=index.scale * factor)


def _is_plain_constant(index: AffineIndex) -> bool:
    return index.axis is None and not index.base


def _combine(fn: str, lhs: AffineIndex, rhs: AffineIndex) -> AffineIndex | None:
    if fn == "add":
        return _add(lhs, rhs)
    if fn == "sub":
        return _add(lhs, _multiply(rhs, -1))
    if fn == "mul" and _is_plain_constant(rhs):
        return _multiply(lhs, rhs.offset)
    if fn == "mul" and _is_plain_constant(lhs):
        return _multiply(rhs, lhs.offset)
    return None


def _of_elementwise(op: Elementwise, definitions: Mapping[Value, Operation]) -> AffineIndex | None:
    if op.fn not in ("add", "sub", "mul", "neg"):
        return None
    parts = [find_affine(arg, definitions) for arg in op.args]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts):
        return None
    return _multiply(known[0], -1) if op.fn == "neg" else _combine(op.fn, *known)


def _of_cast(op: Cast, definitions: Mapping[Value, Operation]) -> AffineIndex | None:
    source, target = op.x.tile.dtype, op.dtype
    # A narrowing cast of an index wraps only where the index was out of range anyway.
    if op.bitcast or not (source.is_integer and target.is_integer):
        return None
    return find_affine(op.x, definitions)


def _of_full(op: Full, definitions: Mapping[Value, Operation]) -> AffineIndex:
    return AffineIndex(offset=int(op.value))


def _of_numbered(op: Operation, definitions: Mapping[Value, Operation]) -> AffineIndex | None:
    (first,) = op.of_one_lane()
    lanes = AffineIndex(axis=0, dim=op.result.tile.shape[0], scale=1)
    if not isinstance(first, Value):
        return replace(lanes, offset=int(first))
    begin = find_affine(first, definitions)
    return _add(begin, lanes) if begin is not None else None


def _of_view(op: Operation, definitions: Mapping[Value, Operation]) -> AffineIndex | None:
    (x,) = op.operand_values()
    index = find_affine(x, definitions)
    if index is None or index.axis is None:
        return index
    to = op.axis_roles()[0][index.axis].to
    return index if to is None else replace(index, axis=to)


def _of_reshape(op: Operation, definitions: Mapping[Value, Operation]) -> AffineIndex | None:
    (x,) = op.operand_values()
    index = find_affine(x, definitions)
    if index is None or index.axis is None:
        return index
    # Where only ones come or go, the axis is the one that is not 1.
    wide = [axis for axis, dim in enumerate(op.result.tile.shape) if not dim.is_one]
    is_same = len(wide) == 1 and op.result.tile.shape[wide[0]] == index.dim
    return replace(index, axis=wide[0]) if is_same else None


_RULES: dict[type[AxisForm], Callable[..., AffineIndex | None]] = {
    Numbered: _of_numbered,
    **dict.fromkeys((Inserted, Repeated, Permuted), _of_view),
    Reshaped: _of_reshape,
}
_VALUE_RULES: dict[type[Operation], Callable[..., AffineIndex | None]] = {
    Elementwise: _of_elementwise,
    Cast: _of_cast,
    Full: _of_full,
}
"""Ops that compute something: axis roles cannot say what."""
