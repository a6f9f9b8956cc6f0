"""Matrix products as one line each, with their size and where their operands are read."""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.backends.cpu.coordinates import Place, access_places, own_coords
from tilesmith.backends.cpu.matrix_views import LoadedMatrix, find_matrix
from tilesmith.backends.cpu.nests import DotStep
from tilesmith.backends.cpu.printing.elements import ElementText
from tilesmith.backends.cpu.printing.expressions import Expr, element
from tilesmith.backends.cpu.printing.scene import Scene
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.ir.ops.indexing import Arange, TileIndex
from tilesmith.ir.values import Value


def print_dot(scene: Scene, step: DotStep) -> None:
    """``acc[:, :] += x[tile_m:, tile_k:] @ y[tile_k:, tile_n:]``."""
    op = step.op
    scene.lines.quote(_lines_behind(scene, step))
    operands = [_Operand(scene, value) for value in (op.lhs, op.rhs)]
    target = element(scene.buffer(op.result), *":" * op.result.tile.rank)
    left, right = (operand.text for operand in operands)
    dims = (*op.lhs.tile.shape, op.rhs.tile.shape[-1])
    sizes = " x ".join(str(scene.length(dim)) for dim in (*dims[:-2], dims[-1], dims[-2]))
    places = ", ".join(dict.fromkeys(operand.where for operand in operands))
    sign = "+=" if step.accumulates else "="
    scene.lines.put(f"{target} {sign} {left} @ {right}", f"{sizes}; {places}")


def _lines_behind(scene: Scene, step: DotStep) -> Iterator[SourceLocation]:
    operands = [value for value in (step.op.acc, step.op.lhs, step.op.rhs) if value is not None]
    places = [(value, own_coords(value.tile.shape)) for value in operands]
    yield from (op.loc for op in scene.tiles.join(places).nodes.values())
    yield step.op.loc


class _Operand:
    """One factor: part of a tensor, or a tile in memory of its own."""

    def __init__(self, scene: Scene, value: Value) -> None:
        self._scene = scene
        matrix = None if scene.tiles.is_stored(value) else find_matrix(value, scene.tiles)
        if matrix is None:
            name = scene.buffer(value)
            self.text = element(name, *":" * value.tile.rank)
            self.where = f"{name} from scratch"
        else:
            self.text = self._part_of_tensor(value, matrix)
            self.where = f"{scene.names.of(matrix.load.tensor)} in place"

    def _part_of_tensor(self, value: Value, matrix: LoadedMatrix) -> Expr:
        load = matrix.load
        places = access_places(load, load.result.tile.shape, matrix.coords)
        rank = sum(not dim.is_one for dim in value.tile.shape)
        with self._scene.names.scope():
            text = ElementText(self._scene, range(rank), ())
            indices = [self._index(text, place) for place in places]
        return element(self._scene.names.of(load.tensor), *indices)

    def _index(self, text: ElementText, place: Place) -> str:
        if not self._scene.tiles.axes(place):
            return str(text.get(place, is_named=False))
        origin = text.origin(place)
        if isinstance(origin, Arange):
            return ":"
        if isinstance(origin, TileIndex):
            return f"{self._scene.scalars[origin.begin]}:"
        return str(text.get(place, is_named=False))
