"""When a store may overwrite, element by element, what a load of the same loop nest reads."""

from __future__ import annotations

from tilesmith.analysis.memory_conflicts import Access, is_same_place
from tilesmith.backends.cpu.coordinates import access_places, own_coords, space_of
from tilesmith.backends.cpu.virtual_tiles import VirtualTiles, is_identity
from tilesmith.ir.ops.memory import Store


def is_injective(op: Store, tiles: VirtualTiles) -> bool:
    """Whether different elements go to different places: each axis moves an index of its own."""
    if op.bases is not None:
        return False
    shape = op.value.tile.shape
    places = access_places(op, shape, own_coords(shape))[: len(op.indices)]
    moved: list[int] = []
    for axis in range(len(space_of(shape))):
        steps = [tiles.derivative(place, axis) for place in places]
        dims = [number for number, step in enumerate(steps) if step != 0]
        if len(dims) != 1 or steps[dims[0]] is None or dims[0] in moved:
            return False
        moved.extend(dims)
    return True


def is_update(load: Access, store: Access, tiles: VirtualTiles) -> bool:
    """Whether each place is overwritten with something computed from what the load finds there."""
    op = store.op
    if not isinstance(op, Store) or not is_same_place(load, store) or not is_injective(op, tiles):
        return False
    shape = op.value.tile.shape
    coords = own_coords(shape)
    nodes = tiles.join([(op.value, coords), *access_places(op, shape, coords)]).nodes
    return all(is_identity(place) for place, node in nodes.items() if node is load.op)
