"""Device prints as loops with a print inside."""

from __future__ import annotations

from tilesmith.backends.cpu.coordinates import own_coords, space_of
from tilesmith.backends.cpu.printing.elements import ElementText
from tilesmith.backends.cpu.printing.scene import Scene
from tilesmith.ir.ops.foreign import Print
from tilesmith.ir.values import Value


def print_print(scene: Scene, op: Print) -> None:
    """A loop nest for each value."""
    places = [(value, own_coords(value.tile.shape)) for value in op.values]
    scene.lines.quote([*scene.lines_behind(places), op.loc])
    if not op.values:
        scene.lines.put(f'print("{op.prefix}")')
    for value in op.values:
        _print_value(scene, op.prefix, value)


def _print_value(scene: Scene, prefix: str, value: Value) -> None:
    space, place = space_of(value.tile.shape), (value, own_coords(value.tile.shape))
    with scene.names.scope():
        text = ElementText(scene, range(len(space)), [place])
        text.put(f'print("{prefix}", {text.get(place)})')
        text.write(
            [
                (f"for {text.letters[n]} in range({scene.length(dim)})", "")
                for n, dim in enumerate(space)
            ]
        )
