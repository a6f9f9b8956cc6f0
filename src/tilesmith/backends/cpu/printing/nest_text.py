"""Nests as loops with statements."""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.backends.cpu.coordinates import Coords, Place
from tilesmith.backends.cpu.nests import Layout, Nest, Root
from tilesmith.backends.cpu.printing.elements import ElementText
from tilesmith.backends.cpu.printing.expressions import Expr, call, function, number
from tilesmith.backends.cpu.printing.scene import Scene
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.ir.ops.memory import Atomic, Store
from tilesmith.ir.ops.reduction import Reduce

_UPDATES = {"sum": "+=", "prod": "*=", "any": "|=", "all": "&="}


def print_nest(scene: Scene, nest: Nest) -> None:
    """The loops of a nest and what they compute."""
    scene.lines.quote(_lines_behind(scene, nest))
    for _, op in nest.reductions:
        if not op.result.tile.rank:
            scene.scalars[op.result] = Expr(scene.names.of(op.result))
    with scene.names.scope():
        _NestText(scene, nest).write()


def _lines_behind(scene: Scene, nest: Nest) -> Iterator[SourceLocation]:
    for root in nest.roots:
        if root.is_own_keep:
            yield from scene.lines_of(scene.tiles.own_closure(root.place))
        else:
            yield from scene.lines_behind(root.places())
        if not root.is_keep:
            yield root.op.loc


class _NestText:
    def __init__(self, scene: Scene, nest: Nest) -> None:
        self._scene = scene
        self._nest = nest
        self._order = _loop_order(nest.layout)
        places = [place for root in nest.roots for place in root.places()]
        kept = [root.place[0] for root in nest.roots if root.is_own_keep]
        self._text = ElementText(scene, self._order, places, kept)

    def write(self) -> None:
        for root in self._nest.roots:
            self._root(root)
        self._text.write([self._header(axis) for axis in self._order])

    # --- loops ------------------------------------------------------------------------------------

    def _header(self, axis: int) -> tuple[str, str]:
        layout = self._nest.layout
        length = self._scene.length(layout.space[axis])
        text = f"for {self._text.letters[axis]} in range({length})"
        if axis == layout.vector_axis:
            return text + self._lanes(length), self._fetching()
        is_plain = layout.vector_axis < 0 and axis == self._order[-1]
        return text, "one by one" if is_plain else ""

    def _fetching(self) -> str:
        names = sorted({op.tensor.name for op in self._nest.prefetched})
        return f"fetches {' and '.join(names)} for the next program" if names else ""

    def _lanes(self, length: Expr) -> str:
        width, size = self._scene.schedule.target.vector_lanes, length.constant
        unroll = self._scene.schedule.cpu.unroll if self._nest.reductions else 1
        parts = [f" by {width}"]
        if unroll > 1 and (size is None or size >= unroll * width):
            parts.append(f"{unroll} at a time")
        if size is None:
            parts.append("rest masked")
        elif size % width:
            parts.append(f"last {size % width} masked")
        return ", ".join(parts)

    # --- statements -------------------------------------------------------------------------------

    def _root(self, root: Root) -> None:
        if root.is_own_keep:
            self._own_keep(root)
        elif root.target is not None:
            target = self._text.stored(root.target, root.place[1])
            self._text.put(f"{target} = {self._direct(root.place)}")
        elif isinstance(root.op, Store):
            print_store(self._text, root.op, root.place[1])
        elif isinstance(root.op, Atomic):
            result, coords = root.op.result, root.place[1]
            is_used = result in self._scene.users
            kept = self._text.stored(result, coords) if is_used else None
            print_atomic(self._text, root.op, coords, kept)
        elif isinstance(root.op, Reduce):
            self._reduce(root.place, root.op)

    def _direct(self, place: Place) -> Expr:
        """What is stored: without a name if that is its only use."""
        return self._text.get(place, is_named=self._text.uses(place) > 1)

    def _own_keep(self, root: Root) -> None:
        value, coords = root.place
        target = self._text.stored(value, coords)
        is_spilled = value in self._scene.program.spilled
        made = self._text.get(root.place, is_named=is_spilled and self._text.uses(root.place) > 1)
        self._text.put(f"{target} = {made}", "kept where the result goes" if is_spilled else "")
        if not is_spilled:
            self._text.remember(root.place, target)

    def _reduce(self, place: Place, op: Reduce) -> None:
        x = self._text.get(place)
        rest = place[1][: op.axis] + place[1][op.axis + 1 :]
        target = self._text.stored(op.result, rest) if rest else self._scene.scalars[op.result]
        if self._nest.layout.vector_axis < 0:
            self._text.put(f"{target} = {number(0) if op.reduction.is_arg else x}")
            return
        dtype = op.x.tile.dtype
        is_flag = op.kind in ("any", "all")
        first = 0 if op.reduction.is_arg else op.reduction.identity(op.result.tile.dtype)
        self._text.put(f"{target} = {number(first)}", outside=1)
        if is_flag and not dtype.is_bool:
            x = function("ne", [x, number(0)])
        if op.kind in _UPDATES:
            self._text.put(f"{target} {_UPDATES[op.kind]} {x}")
        else:
            self._text.put(f"{target} = {call(op.kind, target, x)}")


def _loop_order(layout: Layout) -> list[int]:
    inner = [axis for axis in (layout.vector_axis, layout.reduced_axis) if axis >= 0]
    return [axis for axis in range(len(layout.space)) if axis not in inner] + inner


def print_store(text: ElementText, op: Store, coords: Coords) -> None:
    """An assignment, under the store's condition."""
    statement = f"{text.address(op, coords)} = {text.get((op.value, coords))}"
    condition = text.mask(op, coords)
    text.put(statement if condition is None else f"if {condition}: {statement}")


def print_atomic(text: ElementText, op: Atomic, coords: Coords, kept: Expr | None) -> None:
    """A call; ``kept`` is what takes the old value."""
    args = [str(text.address(op, coords)), str(text.get((op.value, coords)))]
    if op.expected is not None:
        args.insert(1, str(text.get((op.expected, coords))))
    if op.order != "relaxed":
        args.append(f"order={op.order!r}")
    made, condition = call(f"atomic_{op.kind}", *args), text.mask(op, coords)
    if kept is None:
        text.put(str(made) if condition is None else f"if {condition}: {made}")
    elif condition is None:
        text.put(f"{kept} = {made}")
    else:
        text.put(f"{kept} = {made} if {condition} else 0")
