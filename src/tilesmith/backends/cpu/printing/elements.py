"""Elements as expressions, in the loops around them.

What has a name of the user's, is used more than once or is long gets a line of its own, outside
of all loops that it does not change with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilesmith.backends.cpu.loop_ir import elements as ir
from tilesmith.backends.cpu.printing.listing import (
    Expr,
    Listing,
    add,
    call,
    conditional,
    element,
    function,
    multiply,
    number,
    product,
)
from tilesmith.dtypes import ElementKind

_MAX_INLINE = 56
_MAX_INDEX = 24


class ElementText:
    """The loops of one nest, from the outermost on, and the statements inside each of them.

    ``elements`` are those that will be asked for.
    """

    def __init__(
        self, listing: Listing, axes: Sequence[int], elements: Iterable[ir.Element]
    ) -> None:
        self.listing = listing
        self._axes = list(axes)
        self.letters = dict(zip(sorted(axes), map(Expr, listing.names.letters(len(axes)))))
        self._made: dict[ir.Element, Expr] = {}
        self._uses: dict[ir.Element, int] = {}
        depths = range(len(axes) + 1)
        self._statements: list[list[tuple[str, str]]] = [[] for _ in depths]
        self._starts: list[list[tuple[str, str]]] = [[] for _ in depths]
        for item in elements:
            self._count(item)

    def uses(self, item: ir.Element) -> int:
        """How often an element is asked for."""
        return self._uses.get(resolve(item), 0)

    def put(self, text: str, remark: str = "", *, outside: int = 0) -> None:
        """Add a statement to the innermost loop, or outside of that many loops."""
        statements = self._starts if outside else self._statements
        statements[len(self._axes) - outside].append((text, remark))

    def write(self, headers: Sequence[tuple[str, str]]) -> None:
        """All loops with their statements; headers come with remarks."""
        depth = len(self._axes) - len(headers)
        for text, remark in (*self._statements[depth], *self._starts[depth]):
            self.listing.lines.put(text, remark)
        if headers:
            with self.listing.lines.block(*headers[0]):
                self.write(headers[1:])

    def get(self, item: ir.Element, *, is_named: bool = True) -> Expr:
        """An element, by name if it deserves one."""
        item = resolve(item)
        if item in self._made:
            return self._made[item]
        made = self.compute(item)
        if isinstance(item, ir.LEAVES):
            return made
        if is_named and self._deserves_name(item, made):
            name = self.listing.names.fresh(item.label.stem)
            self._statements[self._depth(item)].append((f"{name} = {made}", ""))
            made = Expr(name)
        self._made[item] = made
        return made

    def remember(self, item: ir.Element, made: Expr) -> None:
        """Say what stands for an element from here on."""
        self._made[resolve(item)] = made

    def compute(self, item: ir.Element) -> Expr:
        """An element from its operands."""
        return ELEMENT_TEXTS[type(item)](self, item)

    def address(self, access: ir.Access) -> Expr:
        """The accessed element of a tensor."""
        name = self.listing.names.of(access.tensor)
        if access.base is not None:
            name = str(call("at", self.get(access.base), name))
        return element(name, *map(self.get, access.indices))

    def mask(self, access: ir.Access) -> Expr | None:
        """The condition of an access."""
        return None if access.mask is None else self.get(access.mask)

    def target(self, place: ir.TilePlace | ir.Access | ir.Variable | ir.Unread) -> Expr:
        """Where something is written: a scalar, scratch memory, or where a later store goes."""
        if isinstance(place, ir.Access):
            return self.address(place)
        if not isinstance(place, ir.TilePlace):
            return Expr(self.listing.names.of(place))
        return element(self.listing.names.of(place.tile), *map(self.position, place.positions))

    def position(self, position: ir.Position) -> Expr:
        """A position along an axis."""
        if isinstance(position, ir.LoopIndex):
            return self.letters[position.axis]
        if isinstance(position, ir.Indirect):
            return self.get(position.element)
        return (
            self._digit(position) if isinstance(position, ir.Digit) else number(position.position)
        )

    def _digit(self, digit: ir.Digit) -> Expr:
        lengths = [self.listing.length(dim) for dim in digit.source]
        linear = number(0)
        for axis, part in enumerate(digit.positions):
            stride = product(lengths[axis + 1 :])
            linear = add(linear, multiply(self.position(part), stride))
        wide = [axis for axis, dim in enumerate(digit.shape) if not dim.is_one]
        below = product([self.listing.length(digit.shape[a]) for a in wide if a > digit.axis])
        if below.constant != 1:
            linear = function("floordiv", [linear, below])
        if digit.axis == wide[0]:
            return linear
        return function("mod", [linear, self.listing.length(digit.shape[digit.axis])])

    def _count(self, item: ir.Element) -> None:
        item = resolve(item)
        self._uses[item] = self._uses.get(item, 0) + 1
        if self._uses[item] == 1:
            for operand in item.operands:
                self._count(operand)

    def _depth(self, item: ir.Element) -> int:
        return max((n + 1 for n, axis in enumerate(self._axes) if axis in item.axes), default=0)

    def _deserves_name(self, item: ir.Element, made: Expr) -> bool:
        if isinstance(item, (ir.Number, ir.PositionOf, ir.BlockLength)):
            return False
        if item.label.hint:
            return True
        is_index = item.dtype.is_integer and not isinstance(item, ir.Read)
        if is_index and len(made.text) <= _MAX_INDEX:
            return False
        is_outside = self._depth(item) < len(self._axes)
        return self._uses.get(item, 0) > 1 or is_outside or len(made.text) > _MAX_INLINE


def resolve(item: ir.Element) -> ir.Element:
    """The element that computes what this one is a view of."""
    while isinstance(item, ir.View) or (isinstance(item, ir.Convert) and _is_widening(item)):
        item = item.x
    return item


def _is_widening(item: ir.Convert) -> bool:
    """Whether a conversion only makes an integer longer, which no reader cares about."""
    source, target = item.x.dtype, item.dtype
    is_longer = source.kind is target.kind is ElementKind.SIGNED and source.bits < target.bits
    return is_longer and not item.is_bitcast


def _read(text: ElementText, item: ir.Read) -> Expr:
    found, mask = text.address(item.access), text.mask(item.access)
    return found if mask is None else conditional(found, mask)


def _apply(text: ElementText, item: ir.Apply) -> Expr:
    args = [text.get(arg) for arg in item.operands]
    return function(item.function, args, is_exact=item.dtype.is_integer)


def _convert(text: ElementText, item: ir.Convert) -> Expr:
    x = text.get(item.x)
    return call("bitcast", item.dtype, x) if item.is_bitcast else call(item.dtype.name, x)


def _position(text: ElementText, item: ir.PositionOf) -> Expr:
    position = text.position(item.position)
    return add(text.get(item.x), position) if item.operands else position


def _joined(text: ElementText, item: ir.Joined) -> Expr:
    sides = [text.get(side) for side in item.operands]
    if len(sides) == 1:
        return sides[0]
    is_first = function("eq", [text.position(item.position), number(0)])
    return function("where", [is_first, *sides])


ELEMENT_TEXTS: dict[type[ir.Element], Callable[[ElementText, Any], Expr]] = {
    ir.Apply: _apply,
    ir.BlockLength: lambda text, item: text.listing.block_size(item.block),
    ir.Convert: _convert,
    ir.Gathered: lambda text, item: text.get(item.x),
    ir.Joined: _joined,
    ir.Number: lambda _, item: number(item.value, item.dtype),
    ir.PositionOf: _position,
    ir.Read: _read,
    ir.ReadTile: lambda text, item: text.target(item.place),
    ir.ReadVariable: lambda text, item: text.listing.scalar(item.variable),
    ir.View: lambda text, item: text.get(item.x),
}
