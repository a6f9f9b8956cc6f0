"""Index tiles as ``sum(coefficient * scalar) + offset + scale * [0, 1, ...)`` along one axis.

Block pointers, tensor descriptors and the analysis of memory conflicts ask for this form.
Arithmetic is that of unbounded integers: index arithmetic is assumed not to wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from tilesmith.ir.axis_roles import AxisForm, Inserted, Numbered, Permuted, Repeated, Reshaped
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.types import Dim, Value

Term = tuple[Value, int]
"""A scalar value and its coefficient."""
Definitions = Mapping[Value, Operation]


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


def find_affine(value: Value, definitions: Definitions) -> AffineIndex | None:
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


def _add(lhs: AffineIndex, rhs: AffineIndex) -> AffineIndex | None:
    if lhs.axis is not None and rhs.axis is not None and lhs.axis != rhs.axis:
        return None
    axis, dim = (lhs.axis, lhs.dim) if lhs.axis is not None else (rhs.axis, rhs.dim)
    scale = lhs.scale + rhs.scale
    if scale == 0:
        axis, dim = None, None
    terms = add_terms(dict(lhs.base), rhs.base).items()
    base = tuple((value, coefficient) for value, coefficient in terms if coefficient)
    return AffineIndex(axis, dim, base, lhs.offset + rhs.offset, scale)


def add_terms(
    total: Mapping[Value, int], terms: Iterable[Term], factor: int = 1
) -> dict[Value, int]:
    """The sum with ``factor`` times these terms added."""
    result = dict(total)
    for value, coefficient in terms:
        result[value] = result.get(value, 0) + factor * coefficient
    return result


def _multiply(index: AffineIndex, factor: int) -> AffineIndex:
    if factor == 0:
        return AffineIndex()
    base = tuple((value, coefficient * factor) for value, coefficient in index.base)
    return replace(index, base=base, offset=index.offset * factor, scale=index.scale * factor)


def _of_elementwise(op: Elementwise, definitions: Definitions) -> AffineIndex | None:
    if op.fn not in ("add", "sub", "mul", "neg"):
        return None
    parts = [find_affine(arg, definitions) for arg in op.args]
    lhs, rhs = parts[0], parts[-1]
    if lhs is None or rhs is None:
        return None
    if op.fn in ("neg", "sub"):
        negated = _multiply(rhs, -1)
        return negated if op.fn == "neg" else _add(lhs, negated)
    if op.fn == "add":
        return _add(lhs, rhs)
    for factor, other in ((rhs, lhs), (lhs, rhs)):
        if factor.axis is None and not factor.base:
            return _multiply(other, factor.offset)
    return None


def _of_cast(op: Cast, definitions: Definitions) -> AffineIndex | None:
    # A narrowing cast of an index wraps only where the index was out of range anyway.
    is_index = op.x.tile.dtype.is_integer and op.dtype.is_integer and not op.bitcast
    return find_affine(op.x, definitions) if is_index else None


def _of_numbered(op: Operation, definitions: Definitions) -> AffineIndex | None:
    (first,) = op.of_one_lane()
    lanes = AffineIndex(axis=0, dim=op.result.tile.shape[0], scale=1)
    if not isinstance(first, Value):
        return replace(lanes, offset=int(first))
    begin = find_affine(first, definitions)
    return _add(begin, lanes) if begin is not None else None


def _of_view(op: Operation, definitions: Definitions) -> AffineIndex | None:
    (x,) = op.operand_values()
    index = find_affine(x, definitions)
    if index is None or index.axis is None:
        return index
    if not isinstance(op.form, Reshaped):
        to = op.axis_roles()[0][index.axis].to
        return index if to is None else replace(index, axis=to)
    # Where only ones come or go, the axis is the one that is not 1.
    wide = [axis for axis, dim in enumerate(op.result.tile.shape) if not dim.is_one]
    is_same = len(wide) == 1 and op.result.tile.shape[wide[0]] == index.dim
    return replace(index, axis=wide[0]) if is_same else None


_RULES: dict[type[AxisForm], Callable[..., AffineIndex | None]] = {
    Numbered: _of_numbered,
    **dict.fromkeys((Inserted, Repeated, Permuted, Reshaped), _of_view),
}
_VALUE_RULES: dict[type[Operation], Callable[..., AffineIndex | None]] = {
    Elementwise: _of_elementwise,
    Cast: _of_cast,
    Full: lambda op, definitions: AffineIndex(offset=int(op.value)),
}
"""Ops that compute something: axis roles cannot say what."""
