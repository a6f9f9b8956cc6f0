"""The memory of a program as declarations: shape, element type and size of each buffer."""

from __future__ import annotations

from tilesmith.backends.cpu.dots.shapes import padded_shape
from tilesmith.backends.cpu.printing.expressions import Expr, multiply, number, product
from tilesmith.backends.cpu.printing.scene import Scene
from tilesmith.dtypes import F32, DType
from tilesmith.ir.ops.matmul import Dot
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
    dtype = _held_as(value.tile.dtype)
    padded = _padded(scene, value, shape)
    size = multiply(product(padded), number(dtype.itemsize))
    parts = [f"{size if size.constant is None else format(size.constant, ',')} bytes"]
    if dtype != value.tile.dtype:
        parts.append(f"held as {dtype}")
    if padded != shape:
        parts.append(f"padded to {' x '.join(map(str, padded))}")
    return ", ".join(parts)


def _held_as(dtype: DType) -> DType:
    """The type of elements in scratch: that of registers."""
    return F32 if dtype.is_low_precision_float else dtype


def _padded(scene: Scene, value: Value, shape: list[Expr]) -> list[Expr]:
    """Products write whole register blocks, past the end of a row."""
    program, definitions = scene.program, scene.tiles.definitions
    sharing = [value, *(v for v in program.aliases if program.buffer_of(v) is value)]
    rows, columns = ([None, None, *(x.constant for x in shape)])[-2:]
    if not any(isinstance(definitions.get(v), Dot) for v in sharing) or not (rows and columns):
        return shape
    lanes = scene.schedule.target.vector_lanes
    sizes = padded_shape(lanes, _held_as(value.tile.dtype), int(rows), int(columns))
    return [*shape[:-2], *map(number, sizes)]
