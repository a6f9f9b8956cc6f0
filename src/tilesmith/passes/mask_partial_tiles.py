"""Resets invalid lanes before they meet valid ones: in reductions, scans, dots, carried values."""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.analysis.masked_lanes import Lanes, find_masked_lanes
from tilesmith.analysis.scalar_arithmetic import normalize
from tilesmith.dtypes import BOOL
from tilesmith.ir.axis_roles import LANES_MEET
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop, Yield
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.traversal import bound_blocks, definitions
from tilesmith.ir.types import Constant, Dim, Value

_NEVER_PADDED_FROM = 32
"""Backends may pad smaller powers of two where a dot needs more lanes, but no larger ones."""

_ACCUMULATIONS = {
    "add": ReduceKind.SUM,
    "mul": ReduceKind.PROD,
    "maximum": ReduceKind.MAX,
    "minimum": ReduceKind.MIN,
}
"""Functions that leave their other operand as it is when one is the reduction's identity."""


def mask_partial_tiles(function: Function) -> Function:
    """Put a mask wherever an invalid lane could reach a valid one and is not neutral there.

    Before::

        %e = elementwise(%x) {fn="exp"} : f32[m, n]
        %s = reduce(%e) {axis=1, kind="sum"} : f32[m]

    After::

        %e = elementwise(%x) {fn="exp"} : f32[m, n]
        %0 = mask(%e) {fill=0.0, axes=[1]} : f32[m, n]
        %s = reduce(%0) {axis=1, kind="sum"} : f32[m]

    Which axes that concerns follows from the axis roles, and ``Operation.neutral`` says what the
    lanes must hold. A carried value with an axis of the loop's own block keeps its old content in
    lanes beyond the end of an iteration's tile.
    """
    return _Masking(function).run()


def may_be_partial(dim: Dim) -> bool:
    """Whether some of an axis's lanes may be invalid under some schedule."""
    size = dim.constant
    if size is None:
        return True
    return not (size == 1 or (size >= _NEVER_PADDED_FROM and size & (size - 1) == 0))


class _Masking:
    """One run of the pass."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._lanes = find_masked_lanes(function)
        self._defined_by = definitions(function.body)

    def run(self) -> Function:
        return self._function.with_body(self._mask_region(self._function.body))

    def _mask_region(self, region: Region) -> Region:
        new_ops = [new for op in region.ops for new in self._mask_op(op)]
        return region.with_ops(new_ops)

    def _mask_op(self, op: Operation) -> Iterator[Operation]:
        if isinstance(op, Loop):
            yield op.with_regions((self._mask_body(op),))
        elif op.form.roles & LANES_MEET:
            yield from self._mask_operands(op)
        else:
            yield op.with_regions(tuple(map(self._mask_region, op.regions())))

    def _needs_mask(self, op: Operation, value: Value, axis: int, neutral: Constant) -> bool:
        if not may_be_partial(value.tile.shape[axis]):
            return False
        held = self._lanes[op].get(value, Lanes((None,) * value.tile.rank)).axes[axis]
        return held is None or held != normalize(neutral, value.tile.dtype)

    def _mask_operands(self, op: Operation) -> Iterator[Operation]:
        """Reset the lanes that meet others in this op; regions in it compute single elements."""
        values = list(op.operand_values())
        masks: list[Operation] = []
        for position, roles in enumerate(op.axis_roles()):
            value = values[position]
            axes = tuple(axis for axis, role in enumerate(roles) if role.role in LANES_MEET)
            fill = op.neutral(position) if axes else None
            if fill is not None and any(self._needs_mask(op, value, axis, fill) for axis in axes):
                masks.append(_make_mask(value, fill, axes))
                values[position] = masks[-1].result
        yield from masks
        yield op.with_operand_list(values) if masks else op

    def _mask_body(self, loop: Loop) -> Region:
        body = self._mask_region(loop.body)
        end = body.terminator
        added: list[Operation] = []
        yielded: list[Value] = []
        for old, new in zip(loop.carried, body.yielded):
            axes = _own_axes(loop, old)
            if not axes or new is old or self._keeps_old(old, new, axes):
                yielded.append(new)
                continue
            kept = _keep_invalid_lanes(old, new, axes)
            added.extend(kept)
            yielded.append(kept[-1].result)
        if not added:
            return body
        return Region(
            body.args, (*body.ops[:-1], *added, Yield(values=tuple(yielded), loc=end.loc))
        )

    def _keeps_old(self, old: Value, new: Value, axes: tuple[int, ...]) -> bool:
        """Whether ``new`` is ``old`` in invalid lanes already."""
        op = self._defined_by.get(new)
        if not isinstance(op, Elementwise):
            return False
        if op.fn == "where":
            # A selection as _keep_invalid_lanes makes it.
            return op.args[2] is old and isinstance(self._defined_by.get(op.args[0]), Mask)
        if op.fn not in _ACCUMULATIONS or old not in op.args:
            return False
        added = op.args[1] if op.args[0] is old else op.args[0]
        neutral = _ACCUMULATIONS[op.fn].identity(added.tile.dtype)
        return not any(self._needs_mask(op, added, axis, neutral) for axis in axes)


def _own_axes(loop: Loop, value: Value) -> tuple[int, ...]:
    blocks = bound_blocks(loop)
    shape = value.tile.shape
    return tuple(axis for axis, dim in enumerate(shape) if blocks & set(dim.symbols))


def _make_mask(value: Value, fill: Constant, axes: tuple[int, ...]) -> Mask:
    return Mask(x=value, fill=fill, axes=axes, results=(value.like(),), loc=value.loc)


def _keep_invalid_lanes(old: Value, new: Value, axes: tuple[int, ...]) -> list[Operation]:
    condition = old.tile.with_dtype(BOOL)
    true = Full(value=True, results=(Value(condition, "", new.loc),), loc=new.loc)
    valid = _make_mask(true.result, False, axes)
    select = Elementwise(
        args=(valid.result, new, old), fn="where", results=(new.like(),), loc=new.loc
    )
    return [true, valid, select]
