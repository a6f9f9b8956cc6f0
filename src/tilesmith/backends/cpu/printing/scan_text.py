"""Scans as loops in which each element builds on the one before."""

from __future__ import annotations

from tilesmith.backends.cpu.coordinates import Coords, own_coords, space_of
from tilesmith.backends.cpu.nests import ScanStep
from tilesmith.backends.cpu.printing.elements import ElementText
from tilesmith.backends.cpu.printing.expressions import Expr, element, function, number
from tilesmith.backends.cpu.printing.scene import Scene
from tilesmith.ir.ops.reduction import Scan

_COMBINATIONS = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}


def print_scan(scene: Scene, step: ScanStep) -> None:
    """A loop along the scanned axis, inside of loops over the others."""
    op = step.op
    shape, coords = op.x.tile.shape, own_coords(op.x.tile.shape)
    scene.lines.quote([*scene.lines_behind([(op.x, coords)]), op.loc])
    scanned = None if shape[op.axis].is_one else len(space_of(shape[: op.axis]))
    others = [axis for axis in range(len(space_of(shape))) if axis != scanned]
    order = others if scanned is None else [*others, scanned]
    with scene.names.scope():
        text = ElementText(scene, order, [(op.x, coords)])
        x = text.get((op.x, coords))
        if scanned is not None:
            x = function(_COMBINATIONS[op.kind], [_one_before(scene, text, op, coords), x])
        first = "last" if op.reverse else "first"
        text.put(f"{text.stored(op.result, coords)} = {x}", f"the {first} one stays as it is")
        text.write([_header(scene, text, op, axis, axis == scanned) for axis in order])


def _one_before(scene: Scene, text: ElementText, op: Scan, coords: Coords) -> Expr:
    before = [text.coordinate(coord) for coord in coords]
    before[op.axis] = function("add" if op.reverse else "sub", [before[op.axis], number(1)])
    return element(scene.buffer(op.result), *before)


def _header(
    scene: Scene, text: ElementText, op: Scan, axis: int, is_scanned: bool
) -> tuple[str, str]:
    positions = f"range({scene.length(space_of(op.x.tile.shape)[axis])})"
    if is_scanned and op.reverse:
        positions = f"reversed({positions})"
    return f"for {text.letters[axis]} in {positions}", "one by one" if is_scanned else ""
