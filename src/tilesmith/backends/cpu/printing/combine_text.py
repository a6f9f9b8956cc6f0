"""Combinations of the user's own as loops: each element meets what came before it."""

from __future__ import annotations

from tilesmith.backends.cpu.coordinates import Coords, own_coords, space_of
from tilesmith.backends.cpu.nests import CombineStep
from tilesmith.backends.cpu.printing.elements import ElementText
from tilesmith.backends.cpu.printing.expressions import Expr, element, function, number
from tilesmith.backends.cpu.printing.scene import Scene
from tilesmith.ir.operation import Region
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.reduction import ReduceWith, ScanWith
from tilesmith.ir.traversal import count_uses
from tilesmith.ir.values import Value

_MAX_INLINE = 40


def print_combination(scene: Scene, step: CombineStep) -> None:
    """A loop along the axis, inside of loops over the others."""
    op = step.op
    shape, coords = op.xs[0].tile.shape, own_coords(op.xs[0].tile.shape)
    places = [(x, coords) for x in op.xs]
    inside = [inner.loc for inner in op.combine.ops]
    scene.lines.quote([*scene.lines_behind(places), *inside, op.loc])
    for result in op.results:
        if not result.tile.rank:
            scene.scalars[result] = Expr(scene.names.of(result))
    combined = None if shape[op.axis].is_one else len(space_of(shape[: op.axis]))
    others = [axis for axis in range(len(space_of(shape))) if axis != combined]
    order = others if combined is None else [*others, combined]
    with scene.names.scope():
        text = ElementText(scene, order, places)
        made = [text.get(place) for place in places]
        rows = list(zip(_targets(scene, text, op, coords), made))
        if combined is not None:
            rows = _steps(scene, text, op, rows)
        first = "last" if isinstance(op, ScanWith) and op.reverse else "first"
        remark = "" if combined is None else f"the {first} one stays as it is"
        for line in _assignments(rows):
            text.put(line, remark)
        text.write([_header(scene, text, op, axis, axis == combined) for axis in order])


def _steps(
    scene: Scene, text: ElementText, op: ReduceWith | ScanWith, rows: list[tuple[Expr, Expr]]
) -> list[tuple[Expr, Expr]]:
    """Targets and what they become, from what they were and the present elements."""
    coords = own_coords(op.xs[0].tile.shape)
    before, made = _before(scene, text, op, coords), [element for _, element in rows]
    moving: list[int] = []
    for n, x in enumerate(op.xs):
        is_number = not scene.tiles.axes((x, coords)) and not _is_stored(scene, op.results[n])
        if is_number and op.combine.yielded[n] is op.combine.args[n]:
            before[n] = made[n]
        else:
            moving.append(n)
    scene.scalars.update(zip(op.combine.args, (*before, *made)))
    new = _combined(scene, text, op.combine)
    return [(rows[n][0], new[n]) for n in moving]


def _assignments(rows: list[tuple[Expr, Expr]]) -> list[str]:
    """One line for each target, or one for all where a later one looks at an earlier one."""
    later = [" ".join(str(new) for _, new in rows[n + 1 :]) for n in range(len(rows))]
    if not any(str(target) in rest for (target, _), rest in zip(rows, later)):
        return [f"{target} = {new}" for target, new in rows]
    targets, values = (", ".join(map(str, part)) for part in zip(*rows))
    return [f"{targets} = {values}"]


def _targets(
    scene: Scene, text: ElementText, op: ReduceWith | ScanWith, coords: Coords
) -> list[Expr]:
    if isinstance(op, ReduceWith):
        coords = coords[: op.axis] + coords[op.axis + 1 :]
    return [
        text.stored(result, coords) if _is_stored(scene, result) else Expr(scene.names.of(result))
        for result in op.results
    ]


def _before(
    scene: Scene, text: ElementText, op: ReduceWith | ScanWith, coords: Coords
) -> list[Expr]:
    """What the elements so far have given."""
    if isinstance(op, ReduceWith):
        return _targets(scene, text, op, coords)
    before = [text.coordinate(coord) for coord in coords]
    before[op.axis] = function("add" if op.reverse else "sub", [before[op.axis], number(1)])
    return [
        element(scene.buffer(result), *before)
        if _is_stored(scene, result)
        else Expr(scene.names.of(result))
        for result in op.results
    ]


def _is_stored(scene: Scene, result: Value) -> bool:
    """Whether a result has memory; nobody looks at one that has none."""
    return scene.program.buffer_of(result) in scene.program.buffers


def _combined(scene: Scene, text: ElementText, combine: Region) -> list[Expr]:
    uses = count_uses(combine)
    for op in combine.ops[:-1]:
        made = text.compute(op, ())
        is_long = len(made.text) > _MAX_INLINE and op.result not in combine.yielded
        if not isinstance(op, Full) and (is_long or uses.get(op.result, 0) > 1):
            name = scene.names.fresh(scene.names.suggest(op.result))
            text.put(f"{name} = {made}")
            made = Expr(name)
        scene.scalars[op.result] = made
    return [scene.scalars[value] for value in combine.yielded]


def _header(
    scene: Scene, text: ElementText, op: ReduceWith | ScanWith, axis: int, is_combined: bool
) -> tuple[str, str]:
    positions = f"range({scene.length(space_of(op.xs[0].tile.shape)[axis])})"
    if is_combined and isinstance(op, ScanWith) and op.reverse:
        positions = f"reversed({positions})"
    return f"for {text.letters[axis]} in {positions}", "one by one" if is_combined else ""
