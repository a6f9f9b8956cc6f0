"""What must hold of every kernel of the loop IR; a lowering that breaks it is our mistake.

Variables and tiles are defined before they are read, positions use loops that are open, lanes and
layouts agree, accesses have an index for each dimension, and values have the type of their place.

It runs where passes are verified too: in all tests and under ``check=True``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tilesmith.backends.cpu.loop_ir import elements as ir
from tilesmith.backends.cpu.loop_ir import statements, whole_tiles
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.diagnostics.location import UNKNOWN, SourceLocation


def verify_kernel(kernel: statements.Kernel) -> None:
    """Raise InternalError unless the kernel is well formed."""
    scope = _Scope(frozenset(kernel.parameters))
    for part in kernel.body:
        if isinstance(part, statements.Grid):
            inside = replace(scope, tiles=frozenset(part.tiles)).with_axes(part.axes)
            _verify_block(inside, part.body)
        else:
            scope = _verify_block(scope, (part,))


@dataclass(frozen=True)
class _Scope:
    """What is defined at a statement, and the user's line."""

    items: frozenset[ir.Tensor | ir.Variable]
    tiles: frozenset[ir.Tile] = frozenset()
    loc: SourceLocation = UNKNOWN

    def require(self, condition: bool, problem: str) -> None:
        if not condition:
            raise InternalError(problem=f"malformed loop IR: {problem}", loc=self.loc)

    def with_items(self, items: Iterable[object]) -> _Scope:
        new = {item for item in items if isinstance(item, ir.Variable)}
        return replace(self, items=self.items | new)

    def with_axes(self, axes: tuple[statements.LoopAxis, ...]) -> _Scope:
        for axis in axes:
            self.read(axis.begin, axis.end, axis.step)
        return self.with_items(axis.index for axis in axes)

    def read(self, *items: ir.Tensor | ir.Variable | None) -> None:
        for item in items:
            name = "" if item is None else item.label.stem
            self.require(item is None or item in self.items, f"{name} is read before it is defined")

    def hold(self, *tiles: ir.Tile) -> None:
        for tile in tiles:
            self.require(tile in self.tiles, f"{tile.label.stem} has no memory in this grid")

    def place(self, place: object, value: ir.Element, loops: int) -> None:
        """Where something is written."""
        if isinstance(place, ir.TilePlace):
            self.hold(place.tile)
            moving = {p.axis for p in place.positions if isinstance(p, ir.LoopIndex)}
            self.require(moving <= {*range(loops)}, f"{place.tile.label.stem} needs more loops")
            is_whole = len(place.positions) == len(place.tile.shape)
            self.require(is_whole, f"{place.tile.label.stem} needs more positions")
        elif isinstance(place, ir.Access):
            self.elements(place.operands, loops)
            self.access(place, value)

    def access(self, access: ir.Access, value: ir.Element) -> None:
        tensor, name = access.tensor.type, access.tensor.label.stem
        self.read(access.tensor)
        self.require(len(access.indices) == tensor.rank, f"{name} needs {tensor.rank} indices")
        self.require(all(i.dtype.is_integer for i in access.indices), f"an index of {name}")
        self.require(value.dtype == tensor.dtype, f"an element of {name} is {value.dtype}")

    def elements(self, elements: Iterable[ir.Element], loops: int) -> None:
        for element in ir.walk_elements(elements):
            self.require(element.axes <= {*range(loops)}, f"{element.label.stem} needs more loops")
            if isinstance(element, ir.ReadVariable):
                self.read(element.variable)
            elif isinstance(element, ir.ReadTile):
                self.place(element.place, element, loops)
            elif isinstance(element, ir.Read):
                self.access(element.access, element)


def _verify_block(scope: _Scope, block: statements.Block) -> _Scope:
    for item in block:
        at = item.writes[0].value.label if isinstance(item, statements.Nest) else item
        scope = replace(scope, loc=at.loc)
        if isinstance(item, (statements.For, statements.While, statements.If)):
            scope = _verify_control_flow(scope, item)
        elif isinstance(item, statements.Nest):
            scope = _verify_nest(scope, item)
        elif isinstance(item, statements.Assign):
            scope.elements([item.value], 0)
            scope.require(item.value.dtype == item.variable.dtype, "a scalar of another type")
            scope = scope.with_items([item.variable])
        elif isinstance(item, (statements.StoreElement, statements.UpdateElement)):
            scope = _verify_write(scope, item, 0)
        else:
            scope = _verify_whole_tile(scope, item)
    return scope


def _verify_nest(scope: _Scope, nest: statements.Nest) -> _Scope:
    layout, loops = nest.layout, len(nest.layout.space)
    scope.require(max(layout.vector_axis, layout.reduced_axis) < loops, "lanes along no loop")
    scope.require(nest.lanes == 1 or layout.vector_axis >= 0, "lanes without a loop")
    is_columns = layout.form is statements.Form.COLUMNS
    scope.require(is_columns == (layout.reduced_axis >= 0), "a reduced loop without columns")
    along = ir.LoopIndex(layout.reduced_axis if is_columns else layout.vector_axis)
    for write in nest.writes:
        scope = _verify_write(scope, write, loops)
        if isinstance(write, statements.ReduceElement) and isinstance(write.target, ir.TilePlace):
            scope.require(along not in write.target.positions, "a result along the reduced loop")
    return scope


def _verify_write(scope: _Scope, write: statements.Write, loops: int) -> _Scope:
    scope.elements(write.operands, loops)
    places = [getattr(write, name, None) for name in ("access", "target", "result")]
    for place in places:
        scope.place(place, write.value, loops)
    return scope.with_items(places)


def _verify_control_flow(
    scope: _Scope, item: statements.For | statements.While | statements.If
) -> _Scope:
    if isinstance(item, statements.If):
        scope.read(item.condition)
        for block, yielded in zip((item.then, item.otherwise), item.yielded):
            _verify_block(scope, block).read(*yielded)
        return scope.with_items(item.results)
    inside = scope.with_items(carried.inside for carried in item.carried)
    scope.read(*(carried.start for carried in item.carried))
    if isinstance(item, statements.For):
        inside = inside.with_axes(item.axes)
    else:
        tested = scope.with_items(carried.tested for carried in item.carried)
        _verify_block(tested, item.condition).read(item.is_open)
    _verify_block(inside, item.body).read(*(carried.following for carried in item.carried))
    return scope.with_items(carried.result for carried in item.carried)


def _verify_whole_tile(scope: _Scope, item: whole_tiles.WholeTile) -> _Scope:
    if isinstance(item, whole_tiles.Product):
        matrices = (item.lhs, item.rhs)
        stored = [m.tile for m in matrices if isinstance(m, whole_tiles.StoredMatrix)]
        scope.hold(item.target, *stored)
        for matrix in matrices:
            if isinstance(matrix, whole_tiles.LoadedMatrix):
                scope.elements(matrix.access.operands, len(matrix.steps))
    elif isinstance(item, whole_tiles.Scan):
        scope.elements([item.value], len(item.space))
        scope.place(item.target, item.value, len(item.space))
    elif isinstance(item, whole_tiles.Combine):
        scope.elements(item.values, len(item.space))
        steps = scope.with_items((*item.args, *(variable for variable, _ in item.steps)))
        steps.elements((value for _, value in item.steps), 0)
        steps.read(*item.yielded)
        return scope.with_items(item.results)
    elif isinstance(item, whole_tiles.Print):
        for value, shape in item.values:
            scope.elements([value], sum(not dim.is_one for dim in shape))
    else:
        scope.hold(item.tile)
    return scope
