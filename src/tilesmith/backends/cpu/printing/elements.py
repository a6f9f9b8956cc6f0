"""Elements of tiles as expressions, in the loops around them.

What has a name of the user's, is used more than once or is long gets a line of its own, outside
of all loops that it does not change with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from tilesmith.backends.cpu.coordinates import (
    Axis,
    Coord,
    Coords,
    Digit,
    Fixed,
    Place,
    Told,
    access_places,
    operands_at,
)
from tilesmith.backends.cpu.printing.expressions import (
    Expr,
    add,
    call,
    conditional,
    element,
    function,
    multiply,
    number,
    product,
)
from tilesmith.backends.cpu.printing.names import TRANSPARENT_OPS
from tilesmith.backends.cpu.printing.scene import Scene
from tilesmith.dtypes import Kind
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.rearrangement import Gather, Join
from tilesmith.ir.values import Value

_MAX_INLINE = 56
_MAX_INDEX = 24


class ElementText:
    """The loops of one nest, from the outermost on, and the statements inside each of them.

    ``places`` are the elements that will be asked for; ``computed`` the stored tiles that this
    nest computes itself.
    """

    def __init__(
        self,
        scene: Scene,
        axes: Sequence[int],
        places: Sequence[Place],
        computed: Collection[Value] = (),
    ) -> None:
        self._scene = scene
        self._axes = list(axes)
        self._computed = computed
        self.letters = dict(zip(sorted(axes), map(Expr, scene.names.letters(len(axes)))))
        self._made: dict[Place, Expr] = {}
        self._uses: dict[Place, int] = {}
        depths = range(len(axes) + 1)
        self._statements: list[list[tuple[str, str]]] = [[] for _ in depths]
        self._starts: list[list[tuple[str, str]]] = [[] for _ in depths]
        for place in places:
            self._count(place)

    def uses(self, place: Place) -> int:
        """How often an element is asked for."""
        return self._uses.get(self._resolve(place), 0)

    def origin(self, place: Place) -> Operation | None:
        """The op that computes an element, behind all views of it."""
        return self._scene.tiles.definitions.get(self._resolve(place)[0])

    def put(self, text: str, remark: str = "", *, outside: int = 0) -> None:
        """Add a statement to the innermost loop, or outside of that many loops."""
        statements = self._starts if outside else self._statements
        statements[len(self._axes) - outside].append((text, remark))

    def write(self, headers: Sequence[tuple[str, str]]) -> None:
        """All loops with their statements; headers come with remarks."""
        depth = len(self._axes) - len(headers)
        for text, remark in (*self._statements[depth], *self._starts[depth]):
            self._scene.lines.put(text, remark)
        if headers:
            with self._scene.lines.block(*headers[0]):
                self.write(headers[1:])

    # --- elements ---------------------------------------------------------------------------------

    def get(self, place: Place, *, is_named: bool = True) -> Expr:
        """An element, by name if it deserves one."""
        place = self._resolve(place)
        if place in self._made:
            return self._made[place]
        value, coords = place
        if self._is_leaf(value):
            return self._leaf(value, coords)
        op = self._scene.tiles.definitions[value]
        made = self.compute(op, coords)
        if is_named and self._deserves_name(place, op, made):
            self.name(place, made)
            return self._made[place]
        self._made[place] = made
        return made

    def name(self, place: Place, made: Expr) -> None:
        """Give an element a line of its own."""
        names = self._scene.names
        name = names.fresh(names.suggest(place[0]))
        self._statements[self._depth(place)].append((f"{name} = {made}", ""))
        self._made[place] = Expr(name)

    def remember(self, place: Place, made: Expr) -> None:
        """Say what stands for an element from here on."""
        self._made[self._resolve(place)] = made

    def compute(self, op: Operation, coords: Coords) -> Expr:
        """An element of an op's result from its operands."""
        return RULES[type(op)](self, op, coords)

    def address(self, op: Load | Store | Atomic, coords: Coords) -> Expr:
        """The accessed element."""
        shape = (op.result if isinstance(op, Load) else op.value).tile.shape
        places = access_places(op, shape, coords)[: len(op.indices)]
        name = self._scene.names.of(op.tensor)
        if not isinstance(op, Atomic) and op.bases is not None:
            base = self.get(access_places(op, shape, coords)[len(op.indices)])
            name = str(call("at", base, name))
        return element(name, *map(self.get, places))

    def mask(self, op: Load | Store | Atomic, coords: Coords) -> Expr | None:
        """The condition of an access."""
        shape = (op.result if isinstance(op, Load) else op.value).tile.shape
        return None if op.mask is None else self.get(access_places(op, shape, coords)[-1])

    def stored(self, value: Value, coords: Coords) -> Expr:
        """An element of a tile in memory: its own, or where a later store goes."""
        store = self._scene.program.spilled.get(value)
        if store is not None:
            return self.address(store, coords)
        return element(self._scene.buffer(value), *map(self.coordinate, coords))

    def coordinate(self, coord: Coord) -> Expr:
        """A position along an axis."""
        if isinstance(coord, Axis):
            return self.letters[coord.number]
        if isinstance(coord, Told):
            return self.get((coord.value, coord.coords))
        if isinstance(coord, Digit):
            return self._digit(coord)
        return number(coord.position if isinstance(coord, Fixed) else 0)

    def block_size(self, block: str) -> Expr:
        """How long a whole tile is."""
        return self._scene.block_size(block)

    def _digit(self, coord: Digit) -> Expr:
        lengths = [self._scene.length(dim) for dim in coord.source]
        linear = number(0)
        for axis, part in enumerate(coord.coords):
            stride = product(lengths[axis + 1 :])
            linear = add(linear, multiply(self.coordinate(part), stride))
        wide = [axis for axis, dim in enumerate(coord.shape) if not dim.is_one]
        below = product([self._scene.length(coord.shape[a]) for a in wide if a > coord.axis])
        if below.constant != 1:
            linear = function("floordiv", [linear, below])
        if coord.axis == wide[0]:
            return linear
        return function("mod", [linear, self._scene.length(coord.shape[coord.axis])])

    def _resolve(self, place: Place) -> Place:
        """The element that computes what this one is a view of."""
        while not self._is_leaf(place[0]):
            op = self._scene.tiles.definitions[place[0]]
            if not isinstance(op, TRANSPARENT_OPS) and not _is_widening(op):
                break
            (place,) = operands_at(op, place[1])
        return place

    def _is_leaf(self, value: Value) -> bool:
        return value not in self._computed and self._scene.tiles.is_stored(value)

    def _leaf(self, value: Value, coords: Coords) -> Expr:
        if value.tile.rank:
            return self.stored(value, coords)
        return self._scene.scalars[value]

    def _count(self, place: Place) -> None:
        place = self._resolve(place)
        self._uses[place] = self._uses.get(place, 0) + 1
        if self._uses[place] == 1 and not self._is_leaf(place[0]):
            for operand in operands_at(self._scene.tiles.definitions[place[0]], place[1]):
                self._count(operand)

    def _depth(self, place: Place) -> int:
        """In how many loops an element must be."""
        moving = self._scene.tiles.axes(place)
        return max((n + 1 for n, axis in enumerate(self._axes) if axis in moving), default=0)

    def _deserves_name(self, place: Place, op: Operation, made: Expr) -> bool:
        if isinstance(op, (Full, TileIndex, Arange, BlockSize)):
            return False
        if self._scene.names.hint(place[0]):
            return True
        is_index = place[0].tile.dtype.is_integer and not isinstance(op, Load)
        if is_index and len(made.text) <= _MAX_INDEX:
            return False
        is_outside = self._depth(place) < len(self._axes)
        return self._uses.get(place, 0) > 1 or is_outside or len(made.text) > _MAX_INLINE


def _is_widening(op: Operation) -> bool:
    """Whether a cast only makes an integer longer, which no reader cares about."""
    if not isinstance(op, Cast) or op.bitcast:
        return False
    source, target = op.x.tile.dtype, op.dtype
    return source.kind is target.kind is Kind.SIGNED and source.bits < target.bits


def _load(text: ElementText, op: Load, coords: Coords) -> Expr:
    found, mask = text.address(op, coords), text.mask(op, coords)
    return found if mask is None else conditional(found, mask)


def _elementwise(text: ElementText, op: Elementwise, coords: Coords) -> Expr:
    args = [text.get(place) for place in operands_at(op, coords)]
    return function(op.fn, args, is_exact=op.result.tile.dtype.is_integer)


def _cast(text: ElementText, op: Cast, coords: Coords) -> Expr:
    x = text.get((op.x, coords))
    return call("bitcast", op.dtype, x) if op.bitcast else call(op.dtype.name, x)


def _full(text: ElementText, op: Full, coords: Coords) -> Expr:
    return number(op.value, op.result.tile.dtype)


def _tile_index(text: ElementText, op: TileIndex, coords: Coords) -> Expr:
    return add(text.get((op.begin, ())), text.coordinate(coords[0]))


def _arange(text: ElementText, op: Arange, coords: Coords) -> Expr:
    return text.coordinate(coords[0])


def _block_size(text: ElementText, op: BlockSize, coords: Coords) -> Expr:
    return text.block_size(op.block)


def _view(text: ElementText, op: Operation, coords: Coords) -> Expr:
    return text.get(operands_at(op, coords)[-1])


def _join(text: ElementText, op: Join, coords: Coords) -> Expr:
    sides = [text.get(place) for place in operands_at(op, coords)]
    if len(sides) == 1:
        return sides[0]
    is_first = function("eq", [text.coordinate(coords[-1]), number(0)])
    return function("where", [is_first, *sides])


RULES: dict[type[Operation], Callable[[ElementText, Any, Coords], Expr]] = {
    Elementwise: _elementwise,
    Cast: _cast,
    Load: _load,
    Full: _full,
    TileIndex: _tile_index,
    Arange: _arange,
    BlockSize: _block_size,
    Join: _join,
    **dict.fromkeys((*TRANSPARENT_OPS, Gather), _view),
}
