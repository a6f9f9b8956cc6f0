"""Products as they cost least: in lowest terms, and with transposes of what is loaded only.

**Lowest terms.** Each product is a number times powers of factors. Factors that are the same along
an axis leave the sums over it, and factors of both terms of a sum are taken out of it: so they
meet what cancels them. ``(a / c + b / c) * (y * c)`` is ``(a + b) * y`` then. It is exact but
for rounding, and for rows of zeros and infinities, of which gradients are not numbers anyway.

**Transposes.** A product of a computed tile takes it from registers as it lies; turned around it
goes through shared memory first. ``(a @ b).T`` is ``b.T @ a.T``, and a function of transposes is
the transpose of the function: all of a loop can be turned where every use of it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.reduction import Reduce, ReduceKind
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import (
    Definitions,
    Replacement,
    Substitution,
    apply_rules,
    definitions,
    walk,
)
from tilesmith.ir.types import ONE, Shape, TileType, Value

Places = tuple[int, ...]
"""For each axis of a factor that is not of length one: the axis of the product."""


@dataclass(frozen=True)
class Factor:
    """A tile that is multiplied, repeated along the axes of the product that it has not."""

    tile: Value
    places: Places


@dataclass(frozen=True)
class Product:
    """A number times powers of factors."""

    number: float = 1.0
    powers: Mapping[Factor, int] = field(default_factory=dict[Factor, int])

    def times(self, other: Product, sign: int = 1) -> Product:
        """The product of two, or their quotient."""
        powers = dict(self.powers)
        for factor, power in other.powers.items():
            powers[factor] = powers.get(factor, 0) + sign * power
        number = self.number * other.number if sign > 0 else self.number / other.number
        return Product(number, {factor: power for factor, power in powers.items() if power})

    def moved(self, axes: Callable[[int], int]) -> Product:
        """The same with other axes."""
        powers = {Factor(f.tile, tuple(map(axes, f.places))): k for f, k in self.powers.items()}
        return Product(self.number, powers)

    def common(self, other: Product) -> Product:
        """What both have in common."""
        shared = {f: (k, other.powers[f]) for f, k in self.powers.items() if f in other.powers}
        powers = {f: min(a, b, key=abs) for f, (a, b) in shared.items() if (a > 0) == (b > 0)}
        return Product(1.0, powers)

    def along(self, axis: int) -> tuple[Product, Product]:
        """The factors that differ along an axis, and the others with the number."""
        inside = {f: k for f, k in self.powers.items() if axis in f.places}
        outside = {f: k for f, k in self.powers.items() if axis not in f.places}
        return Product(1.0, inside), Product(self.number, outside)


def _wide_axes(shape: Shape) -> Places:
    return tuple(axis for axis, dim in enumerate(shape) if not dim.is_one)


class _Reducer:
    """Rebuilds regions; products are written where something else needs them."""

    def __init__(self) -> None:
        self._products: dict[Value, Product] = {}
        self._numbers: dict[Value, float] = {}
        self._writer = TileWriter()

    def rebuild(self, region: Region) -> Region:
        """The region with all products in lowest terms."""
        self._writer.open_region()
        for op in region.ops:
            self._writer.locate = lambda loc=op.loc: loc
            if isinstance(op, Full):
                self._numbers[op.result] = float(op.value)
            product = self._product_of(op)
            if product is not None:
                self._products[op.result] = product
                continue
            current = op.with_operands(self._value)
            regions = tuple(map(self.rebuild, current.regions()))
            self._writer.insert(current.with_regions(regions))
        return self._writer.close_region(region.args)

    def _value(self, value: Value) -> Value:
        """A value as an operand of something else."""
        product = self._products.get(value)
        if product is None:
            return value
        written = self._write(product, value.tile)
        written.name = written.name or value.name
        return written

    def _of(self, value: Value) -> Product:
        if value in self._products:
            return self._products[value]
        number = self._numbers.get(value)
        if number is not None and isfinite(number) and number != 0.0:
            return Product(number)
        return Product(1.0, {Factor(value, _wide_axes(value.tile.shape)): 1})

    def _product_of(self, op: Operation) -> Product | None:
        rule = _PRODUCT_RULES.get(type(op))
        is_float = rule is not None and op.result.tile.dtype.is_float
        if rule is None or not is_float or op.result.tile.dtype.is_low_precision_float:
            return None
        return rule(self, op)

    def elementwise(self, op: Elementwise) -> Product | None:
        """A product, a quotient, or a sum of products."""
        factors = [self._of(arg) for arg in op.args]
        if op.fn in ("mul", "div"):
            return factors[0].times(factors[1], 1 if op.fn == "mul" else -1)
        if op.fn == "neg":
            return factors[0].times(Product(-1.0))
        if op.fn not in ("add", "sub"):
            return None
        common = factors[0].common(factors[1])
        if not common.powers:
            return None
        left, right = (product.times(common, -1) for product in factors)
        fn = op.fn
        if right.number < 0:
            fn, right = "sub" if fn == "add" else "add", right.times(Product(-1.0))
        kind = op.result.tile
        total = self._writer.apply(fn, self._write(left, kind), self._write(right, kind))
        return common.times(self._of(total))

    def reduce(self, op: Reduce) -> Product | None:
        """A sum, with what is the same in all of its terms before it."""
        if op.reduction is not ReduceKind.SUM or op.x not in self._products:
            return None
        inside, outside = self._products[op.x].along(op.axis)
        if not inside.powers or not (outside.powers or outside.number != 1.0):
            return None
        terms = self._write(inside, op.x.tile)
        total = self._writer.create(Reduce, op.result.type, x=terms, axis=op.axis, kind=op.kind)
        rest = outside.moved(lambda axis: axis - (axis > op.axis))
        return rest.times(self._of(total))

    def view(self, op: Broadcast | ExpandDims | Reshape) -> Product | None:
        """The same factors, elsewhere."""
        old, new = op.x.tile.shape, op.result.tile.shape
        if isinstance(op, Broadcast):
            return self._of(op.x)
        before, after = _wide_axes(old), _wide_axes(new)
        if [old[axis] for axis in before] != [new[axis] for axis in after]:
            return None
        return self._of(op.x).moved(dict(zip(before, after)).__getitem__)

    def _write(self, product: Product, kind: TileType) -> Value:
        """A product as a tile: factors that are repeated alike are multiplied before that."""
        groups: dict[Places, list[tuple[Value, int]]] = {}
        for factor, power in product.powers.items():
            groups.setdefault(factor.places, []).append((factor.tile, power))
        whole = _wide_axes(kind.shape)
        number = product.number
        parts: list[tuple[Value, int]] = groups.pop(whole, [])
        for places, factors in groups.items():
            narrow = kind.with_shape(tuple(kind.shape[axis] for axis in places))
            lines = [(self._writer.line(tile, narrow.shape), power) for tile, power in factors]
            value = self._multiply(lines, number, narrow)
            number = 1.0
            parts.append((self._repeat(value, places, kind), 1))
        parts = [(self._fit(tile, kind), power) for tile, power in parts]
        return self._multiply(parts, number, kind)

    def _fit(self, tile: Value, kind: TileType) -> Value:
        return self._writer.line(tile, kind.shape)

    def _repeat(self, value: Value, places: Places, kind: TileType) -> Value:
        shape = tuple(dim if i in places else ONE for i, dim in enumerate(kind.shape))
        others = tuple(axis for axis in range(kind.rank) if axis not in places)
        if others:
            expanded = kind.with_shape(shape)
            value = self._writer.create(ExpandDims, expanded, x=value, axes=others)
        if shape == kind.shape:
            return value
        return self._writer.create(Broadcast, kind, x=value)

    def _multiply(self, parts: Iterable[tuple[Value, int]], number: float, kind: TileType) -> Value:
        above = [tile for tile, power in parts for _ in range(power)]
        below = [tile for tile, power in parts for _ in range(-power)]
        top = self._chain(above)
        bottom = self._chain(below)
        if top is None:
            top, number = self._writer.full(kind, number), 1.0
        if bottom is not None:
            top = self._writer.apply("div", top, bottom)
        if number == -1.0:
            return self._writer.apply("neg", top)
        if number == 1.0:
            return top
        return self._writer.apply("mul", top, self._writer.full(kind, number))

    def _chain(self, tiles: list[Value]) -> Value | None:
        total: Value | None = None
        for tile in tiles:
            total = tile if total is None else self._writer.apply("mul", total, tile)
        return total


_PRODUCT_RULES: dict[type[Operation], Callable[[_Reducer, Any], Product | None]] = {
    Elementwise: _Reducer.elementwise,
    Reduce: _Reducer.reduce,
    Broadcast: _Reducer.view,
    ExpandDims: _Reducer.view,
    Reshape: _Reducer.view,
}


def reduce_to_lowest_terms(function: Function) -> Function:
    """Cancel factors of products, through sums and views.

    Before::

        %a = elementwise(%g, %c) {fn="div"} : f32[t, 8]
        %b = elementwise(%a, %c) {fn="mul"} : f32[t, 8]

    After, ``%b`` is ``%g``.
    """
    return function.with_body(_Reducer().rebuild(function.body))


def _swap(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _is_transpose(op: Operation) -> bool:
    return isinstance(op, Permute) and op.order == _swap(op.x.tile.rank)


def transposed(kind: TileType) -> TileType:
    """A type with its last two axes swapped."""
    return kind.with_shape(tuple(kind.shape[axis] for axis in _swap(kind.rank)))


def transpose(writer: TileWriter, x: Value) -> Value:
    """A tile with its last two axes swapped."""
    return writer.create(Permute, transposed(x.tile), x=x, order=_swap(x.tile.rank))


def drop_double_transposes(function: Function) -> Function:
    """Drop a permutation that undoes the one before.

    Before::

        %a = permute(%x) {order=[1, 0]} : f32[n, m]
        %b = permute(%a) {order=[1, 0]} : f32[m, n]

    After, ``%b`` is ``%x``.
    """
    return apply_rules(function, [_undone])


def _undone(op: Operation, find: Definitions) -> Replacement | None:
    source = find(op.x) if isinstance(op, Permute) else None
    if not isinstance(op, Permute) or not isinstance(source, Permute):
        return None
    order = tuple(source.order[axis] for axis in op.order)
    return source.x if order == tuple(range(len(order))) else None


def push_transposes(function: Function) -> Function:
    """Transpose what a tile is computed from, up to what is loaded.

    Before::

        %a = dot(%x, %y, none) : f32[m, n]
        %b = elementwise(%a) {fn="exp"} : f32[m, n]
        %c = permute(%b) {order=[1, 0]} : f32[n, m]

    After::

        %p = permute(%y) {order=[1, 0]} : f32[n, k]
        %q = permute(%x) {order=[1, 0]} : f32[k, m]
        %a = dot(%p, %q, none) : f32[n, m]
        %c = elementwise(%a) {fn="exp"} : f32[n, m]
    """
    pusher = _Pusher(definitions(function.body))
    return function.with_body(pusher.rebuild(function.body, {}))


class _Pusher:
    """Rebuilds regions with each transpose written by way of what it is computed from."""

    def __init__(self, known: Mapping[Value, Operation]) -> None:
        self._known = known
        self._writer = TileWriter()
        self._substitution = Substitution()
        self._done: dict[Value, Value] = {}
        """Transposes that are there already, by what they are of."""

    def rebuild(self, region: Region, done: Mapping[Value, Value]) -> Region:
        """The region; ``done`` are the transposes before it."""
        self._writer.open_region()
        self._done = dict(done)
        for op in region.ops:
            current = op.with_operands(self._substitution)
            if isinstance(op, Permute) and _is_transpose(op):
                self._writer.locate = lambda loc=op.loc: loc
                self._substitution[op.result] = self.transposed(op.x)
                continue
            own = self._done
            inner = tuple(self.rebuild(one, own) for one in current.regions())
            self._done = own
            self._writer.insert(current.with_regions(inner))
        return self._writer.close_region(region.args)

    def transposed(self, value: Value) -> Value:
        """The transpose of a value."""
        if value not in self._done:
            source = self._known.get(value)
            rule = None if source is None else _TRANSPOSE_RULES.get(type(source))
            if isinstance(source, Permute) and _is_transpose(source):
                self._done[value] = self._substitution(source.x)
            elif rule is not None:
                self._done[value] = rule(self, source)
                self._done[value].name = value.name
            else:
                x = self._substitution(value)
                order = _swap(x.tile.rank)
                kind = transposed(x.tile)
                self._done[value] = self._writer.create(Permute, kind, x=x, order=order)
        return self._done[value]

    def elementwise(self, op: Elementwise) -> Value:
        """A function of transposes."""
        args = tuple(map(self.transposed, op.args))
        return self._writer.create(Elementwise, transposed(op.result.tile), args=args, fn=op.fn)

    def cast(self, op: Cast) -> Value:
        """The transpose in another type."""
        kind = transposed(op.result.tile)
        return self._writer.create(Cast, kind, x=self.transposed(op.x), bitcast=op.bitcast)

    def broadcast(self, op: Broadcast) -> Value:
        """The other axis repeated."""
        kind = transposed(op.result.tile)
        return self._writer.create(Broadcast, kind, x=self.transposed(op.x))

    def expand(self, op: ExpandDims) -> Value:
        """The new axis on the other side."""
        rank = op.result.tile.rank
        axes = tuple(sorted(_swap(rank)[axis] for axis in op.axes))
        is_line = {rank - 1, rank - 2} & set(op.axes)
        x = self._substitution(op.x) if is_line else self.transposed(op.x)
        return self._writer.create(ExpandDims, transposed(op.result.tile), x=x, axes=axes)

    def full(self, op: Full) -> Value:
        """The same number."""
        return self._writer.full(transposed(op.result.tile), op.value)

    def dot(self, op: Dot) -> Value:
        """The product the other way round."""
        sides = {"lhs": self.transposed(op.rhs), "rhs": self.transposed(op.lhs)}
        acc = None if op.acc is None else self.transposed(op.acc)
        kind = transposed(op.result.tile)
        return self._writer.create(Dot, kind, **sides, acc=acc, precision=op.precision)


_TRANSPOSE_RULES: dict[type[Operation], Callable[[_Pusher, Any], Value]] = {
    Elementwise: _Pusher.elementwise,
    Cast: _Pusher.cast,
    Broadcast: _Pusher.broadcast,
    ExpandDims: _Pusher.expand,
    Full: _Pusher.full,
    Dot: _Pusher.dot,
}


def count_computed_transposes(function: Function) -> int:
    """How many transposes loops have of tiles that are not simply loaded."""
    known = definitions(function.body)
    loops = [op for op in walk(function.body) if isinstance(op, Loop)]
    inner = {op for loop in loops for op in walk(loop.body)}
    count = 0
    for op in inner:
        source = known.get(op.x) if isinstance(op, Permute) and _is_transpose(op) else None
        while isinstance(source, Cast):
            source = known.get(source.x)
        count += source is not None and not isinstance(source, Load)
    return count
