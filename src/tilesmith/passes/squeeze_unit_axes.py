"""Drops tile axes whose block holds one element: a row becomes a vector, an index a scalar.

Goes in: a function and the blocks of size 1. Comes out: the same function with those axes gone from
every tile. Such an axis has one lane, which is always valid. Where a product has a batch of the
constant size 1 (a tile with ``block_size=1``), all constant ones go: matrix units take matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from tilesmith.ir import axis_roles as forms
from tilesmith.ir.axis_roles import AxisForm
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.rearrangement import Gather
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import ONE, Dim, Shape, TileType, Value


def squeeze_unit_axes(function: Function, units: Collection[str]) -> Function:
    """Remove the axes of the blocks ``units``.

    Before, with ``b`` among the units::

        %i = tile_index(%begin) {block="b"} : i32[b]
        %p = expand_dims(%i) {axes=[1]} : i32[b, 1]
        %x_tile = load(%x, none, [%p, %q]) : f32[b, n]

    After::

        %x_tile = load(%x, none, [%begin, %q1]) : f32[n]
    """
    drops_ones = _has_batch_of_one(function)
    if not units and not drops_ones:
        return function
    return function.with_body(_Squeezer(units, drops_ones=drops_ones).region(function.body))


def _has_batch_of_one(function: Function) -> bool:
    products = (op.result.tile for op in walk_function(function) if isinstance(op, Dot))
    return any(tile.rank == 3 and tile.shape[0].is_one for tile in products)


class _Axes:
    """What becomes of values: a map from old ones to new ones, and the op that defines each."""

    def __init__(self, units: Collection[str], *, drops_ones: bool) -> None:
        self._units = frozenset(units)
        self._drops_ones = drops_ones
        self._new: dict[Value, Value] = {}
        self._definitions: dict[Value, Operation] = {}
        self._ops: list[Operation] = []

    def _dim(self, dim: Dim) -> Dim:
        return dim.substitute(dict.fromkeys(self._units, ONE))

    def _dropped(self, shape: Shape) -> tuple[int, ...]:
        """The axes that go: those that were no constant 1 and are now, or all ones."""
        return tuple(
            axis
            for axis, dim in enumerate(shape)
            if self._dim(dim).is_one and (self._drops_ones or not dim.is_one)
        )

    def _shape(self, shape: Shape) -> Shape:
        dropped = self._dropped(shape)
        return tuple(self._dim(dim) for axis, dim in enumerate(shape) if axis not in dropped)

    def _renumber(self, axes: Iterable[int], shape: Shape) -> tuple[int, ...]:
        """The axes that stay, counted without those that go."""
        dropped = self._dropped(shape)
        return tuple(axis - sum(d < axis for d in dropped) for axis in axes if axis not in dropped)

    def _get(self, value: Value) -> Value:
        return self._new.get(value, value)

    def _squeezed_value(self, value: Value) -> Value:
        if isinstance(value.type, TileType):
            shape = self._shape(value.type.shape)
            if shape != value.type.shape:
                self._new[value] = value.like(value.type.with_shape(shape))
        return self._get(value)

    def _append(self, op: Operation) -> None:
        self._ops.append(op)
        self._definitions.update((value, op) for value in op.results)

    def _insert(self, like: Value, shape: Shape, make: Callable[..., Operation]) -> Value:
        """Append ``make(results=...)`` with a result like ``like`` of another shape."""
        result = like.like(like.tile.with_shape(shape))
        self._append(make(results=(result,), loc=like.loc))
        return result

    def _expanded(self, value: Value, axes: tuple[int, ...]) -> Value:
        """With ones at these axes of the result."""
        kept = iter(value.tile.shape)
        rank = value.tile.rank + len(axes)
        shape = tuple(ONE if axis in axes else next(kept) for axis in range(rank))
        return self._insert(value, shape, lambda **fields: ExpandDims(x=value, axes=axes, **fields))

    def _cast(self, value: Value, wanted: Value) -> Value:
        if value.tile.dtype == wanted.tile.dtype:
            return value
        result = wanted.like(wanted.tile.with_shape(value.tile.shape))
        self._append(Cast(x=value, results=(result,), loc=wanted.loc))
        return result

    def _fit(self, value: Value, target: Shape) -> Value:
        """The squeezed value without the ones that stand where ``target`` loses an axis."""
        if self._drops_ones:
            return self._align(value, target)
        old = value.tile.shape
        missing = len(target) - len(old)
        gone = {axis - missing for axis in self._dropped(target)}
        ones = [axis for axis in gone if axis >= 0 and old[axis].is_one]
        return self._drop_ones(self._get(value), self._renumber(sorted(ones), old))

    def _align(self, value: Value, target: Shape) -> Value:
        """The value without any ones, with new ones where only the squeezed ``target`` has axes."""
        dims = (*[ONE] * (len(target) - value.tile.rank), *value.tile.shape)
        dropped = self._dropped(target)
        kept = [self._dim(dim) for axis, dim in enumerate(dims) if axis not in dropped]
        axes = tuple(axis for axis, dim in enumerate(kept) if dim.is_one)
        return self._expanded(self._get(value), axes) if axes else self._get(value)

    def _drop_ones(self, value: Value, axes: tuple[int, ...]) -> Value:
        if not axes:
            return value
        shape = tuple(dim for axis, dim in enumerate(value.tile.shape) if axis not in axes)
        op = self._definitions.get(value)
        if op is not None and op.form == forms.Kept():
            fitted = {old: self._drop_ones(old, axes) for old in op.operand_values()}
            again = op.with_operands(fitted.__getitem__)
            return self._insert(value, shape, lambda **fields: replace(again, **fields))
        if not isinstance(op, ExpandDims) or not set(axes) <= set(op.axes):
            return self._insert(value, shape, lambda **fields: Reshape(x=value, **fields))
        kept = tuple(a - sum(d < a for d in axes) for a in op.axes if a not in axes)
        if not kept:
            return op.x
        return self._insert(value, shape, lambda **fields: ExpandDims(x=op.x, axes=kept, **fields))


class _Squeezer(_Axes):
    """One run over a function: a rule for each form of axis roles."""

    def region(self, region: Region) -> Region:
        outer, self._ops = self._ops, []
        args = tuple(map(self._squeezed_value, region.args))
        for op in region.ops:
            FORM_RULES[type(op.form)](self, op)
        ops, self._ops = self._ops, outer
        return Region(args, tuple(ops))

    def generic(self, op: Operation) -> None:
        current = op.with_operands(self._get)
        current = current.with_regions(tuple(map(self.region, op.regions())))
        results = tuple(map(self._squeezed_value, op.results))
        if any(new is not old for new, old in zip(results, op.results)):
            current = replace(current, results=results)
        self._append(current)

    def foreign(self, op: Operation) -> None:
        """What shows tiles to the user, or to code of the user's own, shows all their axes."""
        current = op.with_operands(self._restored)
        shapes = [tuple(map(self._dim, old.tile.shape)) for old in op.results]
        made = tuple(v.like(v.tile.with_shape(shape)) for v, shape in zip(op.results, shapes))
        self._append(replace(current, results=made))
        for old, new in zip(op.results, made):
            final = self._squeezed_value(old)
            if final.type == new.type:
                self._new[old] = new
            else:
                self._append(Reshape(x=new, results=(final,), loc=op.loc))

    def _restored(self, value: Value) -> Value:
        axes = self._dropped(value.tile.shape) if isinstance(value.type, TileType) else ()
        return self._expanded(self._get(value), axes) if axes else self._get(value)

    def numbered(self, op: Operation) -> None:
        if self._dropped(op.result.tile.shape):
            self._take_one_lane(op)
        else:
            self.generic(op)

    def _take_one_lane(self, op: Operation) -> None:
        """Put what the op gives for its only lane in the place of its results."""
        for old, new in zip(op.results, op.of_one_lane()):
            if isinstance(new, Value):
                self._new[old] = self._cast(self._get(new), old)
            else:
                self._append(Full(value=new, results=(self._squeezed_value(old),), loc=op.loc))

    def with_named_axes(self, op: Operation) -> None:
        """An op that does something along the axes it names does nothing without any."""
        if not op.form.attribute:
            self.generic(op)
            return
        axes = self._renumber(op.form.numbers(op), op.form.numbered(op).tile.shape)
        if axes:
            self.generic(op.with_axis_numbers(axes))
        else:
            self._new[op.result] = self._get(next(op.operand_values()))

    def broadcast(self, op: Broadcast) -> None:
        x = self._fit(op.x, op.result.tile.shape)
        if x.tile.shape == self._shape(op.result.tile.shape):
            self._new[op.result] = x
        else:
            self._append(replace(op, x=x, results=(self._squeezed_value(op.result),)))

    def permute(self, op: Permute) -> None:
        order = self._renumber(op.order, op.x.tile.shape)
        if order == tuple(range(len(order))):
            self._new[op.result] = self._get(op.x)
        else:
            self.generic(replace(op, order=order))

    def gather(self, op: Gather) -> None:
        """An axis that only the tile or only its positions lose comes back for the gather."""
        shape, positions = op.x.tile.shape, op.index.tile.shape
        if self._renumber((op.axis,), shape) and self._renumber((op.axis,), positions):
            (axis,) = self._renumber((op.axis,), shape)
            self.generic(replace(op, axis=axis))
            return
        axis = sum(other not in self._dropped(shape) for other in range(op.axis))
        x, index = self._with_axis(op.x, op.axis, axis), self._with_axis(op.index, op.axis, axis)
        final = self._squeezed_value(op.result)
        found = self._insert(
            final, index.tile.shape, lambda **fields: Gather(x=x, index=index, axis=axis, **fields)
        )
        self._append(Reshape(x=found, results=(final,), loc=op.loc))

    def _with_axis(self, value: Value, old: int, new: int) -> Value:
        squeezed, is_gone = self._get(value), old in self._dropped(value.tile.shape)
        return self._expanded(squeezed, (new,)) if is_gone else squeezed

    def along_axis(self, op: Operation) -> None:
        axis = self._renumber(op.form.numbers(op), op.form.numbered(op).tile.shape)
        if axis:
            self.generic(op.with_axis_numbers(axis))
        else:
            self._take_one_lane(op)

    def access(self, op: Operation) -> None:
        accessed = forms.Accessed.tile(op).tile.shape
        parts = [value for value in op.operand_values() if isinstance(value.type, TileType)]
        # Indices need not have the rank of what they access if they are scalars.
        fitted = {
            part: self._fit(part, accessed) if self._get(part).tile.rank else self._get(part)
            for part in parts
        }
        current = op.with_operands(lambda value: fitted.get(value, value))
        self._append(replace(current, results=tuple(map(self._squeezed_value, op.results))))

    def dot(self, op: Dot) -> None:
        """The batch axis may go; rows, columns and the contracted axis stay as ones."""
        lhs, rhs = self._factor(op.lhs, op), self._factor(op.rhs, op)
        acc = None if op.acc is None else self._matrix(self._get(op.acc), op.acc)
        shape = self._matrix_shape(op.result.tile.shape)
        final = self._squeezed_value(op.result)
        if shape == final.tile.shape:
            self._append(replace(op, lhs=lhs, rhs=rhs, acc=acc, results=(final,)))
            return
        product = op.result.like(op.result.tile.with_shape(shape))
        self._append(replace(op, lhs=lhs, rhs=rhs, acc=acc, results=(product,)))
        self._append(Reshape(x=product, results=(final,), loc=op.loc))

    def _factor(self, value: Value, op: Dot) -> Value:
        matrix = self._matrix(self._fit_batch(value, op), value)
        is_single = matrix.tile.rank < len(self._matrix_shape(op.result.tile.shape))
        return self._expanded(matrix, (0,)) if is_single else matrix

    def _fit_batch(self, value: Value, op: Dot) -> Value:
        if self._drops_ones:
            return self._get(value)
        is_gone = op.result.tile.rank == 3 and 0 in self._dropped(op.result.tile.shape)
        is_one = value.tile.rank == 3 and value.tile.shape[0].is_one
        return self._drop_ones(self._get(value), (0,)) if is_gone and is_one else self._get(value)

    def _matrix_shape(self, shape: Shape) -> Shape:
        batch = self._shape(shape[:-2])
        return (*batch, *map(self._dim, shape[-2:]))

    def _matrix(self, value: Value, old: Value) -> Value:
        """The squeezed value with its last two axes back, where they are gone."""
        rank = old.tile.rank
        lost = [axis for axis in self._dropped(old.tile.shape) if axis >= rank - 2]
        if not lost:
            return value
        full = value.tile.rank + len(lost)
        return self._expanded(value, tuple(axis - rank + full for axis in lost))


FORM_RULES: dict[type[AxisForm], Callable[[_Squeezer, Any], None]] = {
    **dict.fromkeys(
        (forms.Uniform, forms.Reshaped, forms.Joined, forms.Carried), _Squeezer.generic
    ),
    **dict.fromkeys((forms.Kept, forms.Inserted), _Squeezer.with_named_axes),
    **dict.fromkeys((forms.Combined, forms.Mixed, forms.Picked), _Squeezer.along_axis),
    forms.Numbered: _Squeezer.numbered,
    forms.Repeated: _Squeezer.broadcast,
    forms.Permuted: _Squeezer.permute,
    forms.Gathered: _Squeezer.gather,
    forms.Contracted: _Squeezer.dot,
    forms.Accessed: _Squeezer.access,
    forms.Opaque: _Squeezer.foreign,
}
"""What becomes of an op: it follows from its axis roles. Every form has a rule."""
