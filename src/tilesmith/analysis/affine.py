"""Index tiles as ``sum(coefficient * scalar) + offset + scale * [0, 1, ...)`` along one axis.

Arithmetic is that of unbounded integers: index arithmetic is assumed not to wrap. An axis of a loop
has full tiles only when its length is certain to be a multiple of its block; lengths are followed
through constants, block sizes, enclosing tiles and the ``min`` in a tile's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from tilesmith.ir.axis_roles import AxisForm, Inserted, Numbered, Permuted, Repeated, Reshaped
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.traversal import definitions, walk_function
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
    def terms(self) -> frozenset[Term]:
        """The base without its order."""
        return frozenset(self.base)

    @property
    def where(self) -> tuple[frozenset[Term], int]:
        """The first index."""
        return self.terms, self.offset


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


def find_partial_axes(
    function: Function, sizes: Mapping[str, int]
) -> dict[Operation, tuple[bool, ...]]:
    """For each grid and loop, whether the last tile of each axis may be partial.

    ``sizes`` gives the blocks; fixed ones may be left out. Axes without a block are False.
    """
    fixed = {block.name: block.fixed for block in function.blocks if block.fixed is not None}
    proof = _Proof(function, {**fixed, **sizes})
    loops = [op for op in walk_function(function) if isinstance(op, (Grid, Loop))]
    return {op: tuple(proof.is_partial(op, i) for i in range(len(op.blocks))) for op in loops}


class _Proof:
    """Decides whether scalar expressions are multiples of a number."""

    def __init__(self, function: Function, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._is_block = function.is_block
        self._defined_by = definitions(function.body)
        self._steps: dict[Value, tuple[Value, int]] = {}
        """Where each loop index starts and by how much it moves."""
        for op in walk_function(function):
            if isinstance(op, (Grid, Loop)):
                self._record_steps(op)

    def _record_steps(self, op: Grid | Loop) -> None:
        steps = iter(op.steps if isinstance(op, Loop) else ())
        for arg, begin, block in zip(op.body.args, op.begins, op.blocks):
            if block:
                size = self._sizes[block] if self._is_block(block) else 1
            else:
                step = self._defined_by.get(next(steps)) if isinstance(op, Loop) else None
                size = int(step.value) if isinstance(step, Full) else 1
            self._steps[arg] = begin, size

    def is_partial(self, op: Grid | Loop, axis: int) -> bool:
        if not op.blocks[axis]:
            return False
        if not self._is_block(op.blocks[axis]):
            # A tile of a runtime size: what it is at trace time proves nothing.
            return True
        end, begin = self._form(op.ends[axis]), self._form(op.begins[axis])
        terms = add_terms(dict(end.base), begin.base, -1)
        size = self._sizes[op.blocks[axis]]
        return not self._is_multiple(terms, end.offset - begin.offset, size)

    def _form(self, value: Value) -> AffineIndex:
        return find_affine(value, self._defined_by) or AffineIndex(base=((value, 1),))

    def _is_multiple(self, terms: Mapping[Value, int], offset: int, divisor: int) -> bool:
        rest = {value: c for value, c in terms.items() if c % divisor}
        if not rest:
            return offset % divisor == 0
        # A minimum or maximum may be made of the other terms, so it is taken apart first.
        value = next((v for v in rest if self._is_extreme(v)), next(iter(rest)))
        factor = rest.pop(value)
        forms = self._alternatives(value, factor, divisor)
        return forms is not None and all(
            self._is_multiple(
                add_terms(rest, form.base, factor), offset + factor * form.offset, divisor
            )
            for form in forms
        )

    def _is_extreme(self, value: Value) -> bool:
        op = self._defined_by.get(value)
        return isinstance(op, Elementwise) and op.fn in ("minimum", "maximum")

    def _alternatives(
        self, value: Value, coefficient: int, divisor: int
    ) -> list[AffineIndex] | None:
        """Forms of which a value is always one, up to multiples of the divisor; None if unknown."""
        op = self._defined_by.get(value)
        if isinstance(op, BlockSize):
            return [AffineIndex(offset=self._sizes[op.block])]
        if isinstance(op, Elementwise) and self._is_extreme(value):
            return [self._form(arg) for arg in op.args]
        begin, size = self._steps.get(value, (value, 1))
        is_known = value in self._steps and coefficient * size % divisor == 0
        return [self._form(begin)] if is_known else None
