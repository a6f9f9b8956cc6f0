"""Products in lowest terms: what is multiplied and divided by goes.

Each product is a number times powers of factors. Factors that are the same along an axis leave the
sums over it, and factors of both terms of a sum are taken out of it: so they meet what cancels
them.
``(a / c + b / c) * (y * c)`` is ``(a + b) * y`` then. It is exact but for rounding, and for rows of
zeros and infinities, of which gradients are not numbers anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.reduction import Reduce, ReduceKind
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Reshape
from tilesmith.ir.tile_writer import TileWriter
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
        if op.fn == "where" and self._numbers.get(op.args[2]) == 0.0:
            return self._kept(op)
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

    def _kept(self, op: Elementwise) -> Product | None:
        """Part of a product, and zeros: its number is that of the part."""
        condition, whole, zeros = op.args
        product = self._of(whole)
        if product.number == 1.0:
            return None
        rest = self._write(product.times(Product(product.number), -1), op.result.tile)
        return Product(product.number).times(
            self._of(self._writer.apply("where", condition, rest, zeros))
        )

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
