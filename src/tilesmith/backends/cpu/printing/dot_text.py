"""Matrix products as one line each, with their size and where their operands are read."""

from __future__ import annotations

from tilesmith.backends.cpu.coordinates import Place, access_places, own_coords
from tilesmith.backends.cpu.matrix_views import LoadedMatrix, find_matrix
from tilesmith.backends.cpu.nests import DotStep
from tilesmith.backends.cpu.printing.elements import ElementText
from tilesmith.backends.cpu.printing.expressions import Expr, element
from tilesmith.backends.cpu.printing.scene import Scene
from tilesmith.ir.ops.indexing import Arange, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.values import Value


def print_dot(scene: Scene, step: DotStep) -> None:
    """``acc[:, :] += x[tile_m:, tile_k:] @ y[tile_k:, tile_n:]``."""
    op = step.op
    factors = [value for value in (op.acc, op.lhs, op.rhs) if value is not None]
    places = [(value, own_coords(value.tile.shape)) for value in factors]
    scene.lines.quote([*scene.lines_behind(places), op.loc])
    operands = [_Operand(scene, value) for value in (op.lhs, op.rhs)]
    target = element(scene.buffer(op.result), *":" * op.result.tile.rank)
    if op in scene.packed:
        operands[1].where = "packed"
    left, right = (operand.text for operand in operands)
    sign = "+=" if step.accumulates else "="
    start = "" if step.starts_in is None else "; begins at zero"
    remark = f"{_size(scene, op)}; {_where(operands)}{start}"
    scene.lines.put(f"{target} {sign} {left} @ {right}", remark)


def _size(scene: Scene, op: Dot) -> str:
    dims = (*op.lhs.tile.shape[:-1], op.rhs.tile.shape[-1], op.lhs.tile.shape[-1])
    most = [scene.full_length(dim) for dim in dims]
    prefix = "" if most == [scene.length(dim) for dim in dims] else "up to "
    return prefix + " x ".join(map(str, most))


def _where(operands: list[_Operand]) -> str:
    (left, left_place), (right, right_place) = ((o.name, o.where) for o in operands)
    if left_place != right_place:
        return f"{left} {left_place}, {right} {right_place}"
    both = left if left == right else f"{left} and {right}"
    return f"{both} {left_place}"


class _Operand:
    """One factor: part of a tensor, or a tile in memory of its own."""

    def __init__(self, scene: Scene, value: Value) -> None:
        self._scene = scene
        matrix = None if scene.tiles.is_stored(value) else find_matrix(value, scene.tiles)
        if matrix is None:
            self.name, self.where = scene.buffer(value), "in scratch"
            self.text = element(self.name, *":" * value.tile.rank)
        else:
            self.name, self.where = scene.names.of(matrix.load.tensor), "in place"
            self.text = self._part_of_tensor(value, matrix)

    def _part_of_tensor(self, value: Value, matrix: LoadedMatrix) -> Expr:
        load = matrix.load
        places = access_places(load, load.result.tile.shape, matrix.coords)
        rank = sum(not dim.is_one for dim in value.tile.shape)
        with self._scene.names.scope():
            text = ElementText(self._scene, range(rank), ())
            indices = [self._index(text, place) for place in places]
        found = element(self._scene.names.of(load.tensor), *indices)
        return Expr(f"{found}.T") if self._is_transposed(places) else found

    def _is_transposed(self, places: list[Place]) -> bool:
        """Whether the tensor's dimensions come in another order than the tile's axes."""
        moving = [axis for place in places for axis in sorted(self._scene.tiles.axes(place))]
        return moving != sorted(moving)

    def _index(self, text: ElementText, place: Place) -> str:
        if not self._scene.tiles.axes(place):
            return str(text.get(place, is_named=False))
        origin = text.origin(place)
        if isinstance(origin, Arange):
            return ":"
        if isinstance(origin, TileIndex):
            return f"{self._scene.scalars[origin.begin]}:"
        return str(text.get(place, is_named=False))
