"""Resets invalid lanes before they meet valid ones: in reductions, scans, dots, carried values.

Selections go that give lanes the constant they hold already: a load reads 0 where its mask is
false, and what is computed from zeros alone is known as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from tilesmith.analysis.masked_lanes import Lanes, find_masked_lanes
from tilesmith.analysis.scalar_arithmetic import convert, evaluate, is_same_constant, normalize
from tilesmith.dtypes import BOOL
from tilesmith.ir.axis_roles import LANES_MEET
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.reduction import KINDS_BY_FUNCTION, Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.traversal import Definitions, Replacement, apply_rules, bound_blocks, definitions
from tilesmith.ir.types import Constant, Dim, Shape, Value

_NEVER_PADDED_FROM = 32
"""Backends may pad smaller powers of two where a dot needs more lanes, but no larger ones."""


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
    return function.with_body(_Masking(function).mask_region(function.body))


def may_be_partial(dim: Dim) -> bool:
    """Whether some of an axis's lanes may be invalid under some schedule."""
    size = dim.constant or 0
    return not (size == 1 or (size >= _NEVER_PADDED_FROM and size & (size - 1) == 0))


class _Masking:
    """One run of the pass."""

    def __init__(self, function: Function) -> None:
        self._lanes = find_masked_lanes(function)
        self._defined_by = definitions(function.body)

    def mask_region(self, region: Region) -> Region:
        new_ops: list[Operation] = []
        for op in region.ops:
            if isinstance(op, Loop):
                new_ops.append(op.with_regions((self._mask_body(op),)))
            elif op.form.roles & LANES_MEET:
                new_ops.extend(self._mask_operands(op))
            else:
                new_ops.append(op.with_regions(tuple(map(self.mask_region, op.regions()))))
        return region.with_ops(new_ops)

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
        body, blocks = self.mask_region(loop.body), bound_blocks(loop)
        added: list[Operation] = []
        yielded: list[Value] = []
        for old, new in zip(loop.carried, body.yielded):
            shape = enumerate(old.tile.shape)
            axes = tuple(axis for axis, dim in shape if blocks & set(dim.symbols))
            if not axes or new is old or self._keeps_old(old, new, axes):
                yielded.append(new)
                continue
            kept = _keep_invalid_lanes(old, new, axes)
            added.extend(kept)
            yielded.append(kept[-1].result)
        if not added:
            return body
        end = Yield(values=tuple(yielded), loc=body.terminator.loc)
        return Region(body.args, (*body.ops[:-1], *added, end))

    def _keeps_old(self, old: Value, new: Value, axes: tuple[int, ...]) -> bool:
        """Whether ``new`` is ``old`` in invalid lanes already."""
        op = self._defined_by.get(new)
        if not isinstance(op, Elementwise):
            return False
        if op.fn == "where":
            # A selection as _keep_invalid_lanes makes it.
            return op.args[2] is old and isinstance(self._defined_by.get(op.args[0]), Mask)
        if op.fn not in KINDS_BY_FUNCTION or old not in op.args:
            return False
        # What is added to the old value leaves it as it is where it is the reduction's identity.
        added = op.args[1] if op.args[0] is old else op.args[0]
        neutral = KINDS_BY_FUNCTION[op.fn].identity(added.tile.dtype)
        return not any(self._needs_mask(op, added, axis, neutral) for axis in axes)


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


_DEPTH = 8
"""How many ops behind a value are looked at."""


def drop_idle_selections(function: Function) -> Function:
    """Use a value itself where it is the selected constant in all lanes not selected.

    Before::

        %v = load(%x, %within, [%i]) : f32[t]
        %s = elementwise(%within, %v, %zero) {fn="where"} : f32[t]

    After::

        %v = load(%x, %within, [%i]) : f32[t]

    with ``%v`` used for ``%s``. Equal conditions must be one value by now.
    """
    return apply_rules(function, (_where_held,))


def _where_held(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Elementwise) or op.fn != "where":
        return None
    condition, chosen, other = op.args
    filled = defined_by(other)
    if not isinstance(filled, Full):
        return None
    axes = _axes(chosen.tile.shape)
    # Lanes are told apart by the axes they lie on, so these must differ from each other.
    if len(set(axes)) < len(axes):
        return None
    held = _Finder(condition, defined_by).find(chosen, _DEPTH)
    fill = normalize(filled.value, other.tile.dtype)
    return chosen if is_same_constant(held, fill) else None


def _axes(shape: Shape) -> list[Dim]:
    return [dim for dim in shape if not dim.is_one]


def _conjuncts(condition: Value, defined_by: Definitions) -> Iterator[Hashable]:
    """What is true together exactly where the condition is, the same for equal comparisons."""
    op = defined_by(condition)
    if isinstance(op, (Broadcast, ExpandDims)):
        yield from _conjuncts(op.x, defined_by)
    elif isinstance(op, Elementwise) and op.fn == "and":
        for arg in op.args:
            yield from _conjuncts(arg, defined_by)
    elif isinstance(op, Elementwise):
        yield (op.fn, *(_arranged(arg, defined_by) for arg in op.args))
    else:
        yield condition


def _arranged(value: Value, defined_by: Definitions) -> Value:
    """The value before it was given further axes."""
    op = defined_by(value)
    while isinstance(op, (Broadcast, ExpandDims)):
        value = op.x
        op = defined_by(value)
    return value


class _Finder:
    """Follows definitions from a value back to loads and constants."""

    def __init__(self, condition: Value, defined_by: Definitions) -> None:
        self._conditions = set(_conjuncts(condition, defined_by))
        self._axes = _axes(_arranged(condition, defined_by).tile.shape)
        self._defined_by = defined_by

    def find(self, value: Value, depth: int) -> Constant | None:
        """The constant held in the lanes in question."""
        op = self._defined_by(value) if depth else None
        if isinstance(op, Full):
            return normalize(op.value, value.tile.dtype)
        if isinstance(op, Load):
            is_masked = op.mask is not None and self._is_false(op.mask)
            return normalize(0, value.tile.dtype) if is_masked else None
        if isinstance(op, (Broadcast, ExpandDims)):
            return self.find(op.x, depth - 1)
        if isinstance(op, Cast):
            held = None if op.bitcast else self.find(op.x, depth - 1)
            return convert(held, op.x.tile.dtype, op.dtype)
        if isinstance(op, Reduce):
            return self._of_reduction(op, depth)
        return self._of_elementwise(op, depth) if isinstance(op, Elementwise) else None

    def _is_false(self, condition: Value) -> bool:
        """Whether a condition is false wherever the given one is."""
        return self._conditions <= set(_conjuncts(condition, self._defined_by))

    def _of_reduction(self, op: Reduce, depth: int) -> Constant | None:
        """Any number of identities give the identity."""
        source = op.x.tile
        is_along = source.shape[op.axis] in self._axes
        if is_along or op.reduction.is_arg or source.dtype != op.result.tile.dtype:
            return None
        identity = normalize(op.reduction.identity(source.dtype), source.dtype)
        held = self.find(op.x, depth - 1)
        return held if is_same_constant(held, identity) else None

    def _of_elementwise(self, op: Elementwise, depth: int) -> Constant | None:
        if op.fn == "where":
            condition, chosen, other = op.args
            rest = self.find(other, depth - 1)
            if rest is None or self._is_false(condition):
                return rest
            return rest if is_same_constant(self.find(chosen, depth - 1), rest) else None
        held = [self.find(arg, depth - 1) for arg in op.args]
        return evaluate(op.fn, op.args[-1].tile.dtype, held)
