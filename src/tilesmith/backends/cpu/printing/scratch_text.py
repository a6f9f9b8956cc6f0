"""The memory of a program as declarations: shape, element type and size of each buffer."""

from __future__ import annotations

from tilesmith.backends.cpu.buffers import held_as, is_product
from tilesmith.backends.cpu.dots.shapes import padded_shape
from tilesmith.backends.cpu.printing.expressions import Expr, multiply, number, product
from tilesmith.backends.cpu.printing.scene import Scene
from tilesmith.dtypes import DType
from tilesmith.ir.values import Value


def print_scratch(scene: Scene) -> None:
    """One line for each buffer."""
    program = scene.program
    for value in program.buffers:
        if value not in program.aliases and value not in program.spilled:
            dtype, shape = value.tile.dtype, [scene.full_length(dim) for dim in value.tile.shape]
            text = f"{scene.names.of(value)} = scratch({dtype}, [{', '.join(map(str, shape))}])"
            scene.lines.put(text, _remark(scene, value, shape))


def _remark(scene: Scene, value: Value, shape: list[Expr]) -> str:
    dtype = held_as(value, scene.program, scene.tiles, scene.schedule.target)
    padded = _padded(scene, value, shape, dtype)
    size = multiply(product(padded), number(dtype.itemsize))
    parts = [f"{size if size.constant is None else format(size.constant, ',')} bytes"]
    if dtype != value.tile.dtype:
        parts.append(f"held as {dtype}")
    if padded != shape:
        parts.append(f"padded to {' x '.join(map(str, padded))}")
    return ", ".join(parts)


def _padded(scene: Scene, value: Value, shape: list[Expr], dtype: DType) -> list[Expr]:
    """Products write whole register blocks, past the end of a row."""
    rows, columns = ([None, None, *(x.constant for x in shape)])[-2:]
    if not is_product(value, scene.program, scene.tiles) or not (rows and columns):
        return shape
    sizes = padded_shape(scene.schedule.target.vector_lanes, dtype, int(rows), int(columns))
    return [*shape[:-2], *map(number, sizes)]
