"""Zeros in shared memory where a tile holds what lies past the end of its loop.

Every group that reads a tile clears it for itself, so that nobody has to wait for others. Groups
that write to the same place write the same: zeros, or what was copied there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from tilesmith.backends.triton.emission.spelling import Expr
from tilesmith.backends.triton.warp_roles.copies import CopiedTile, Shared
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.types import Dim

VECTOR_BYTES, LANES, WARPS = 16, 32, 4
CLEARING_FUNCTIONS = {
    "_clear_rest": '''
@gluon.jit
def _clear_rest(tile, left, AXIS: gl.constexpr, LAYOUT: gl.constexpr):
    """Zeros after the first elements along an axis; the rest stays."""
    places = gl.arange(0, tile.shape[AXIS], gl.SliceLayout(1 - AXIS, LAYOUT))
    held = tile.load(LAYOUT)
    tile.store(gl.where(gl.expand_dims(places < left, 1 - AXIS), held, gl.zeros_like(held)))
    # The matrix units read memory by another way than threads write it.
    fence_async_shared()
''',
}
"""Functions of a module, by name."""


def emit_clearing(
    emitter: RoleEmitter, shared: Shared, places: Mapping[Load, str], conditions: Sequence[str]
) -> None:
    """Clear tiles of a turn from where the loop ends, if it is the last: if all conditions hold."""
    plan, name = shared.plan, "_clear_rest"
    block = plan.loop.blocks[0]
    begin, end = emitter.expr(plan.loop.begins[0]), emitter.expr(plan.loop.ends[0])
    left = end - begin - Expr(f"(turns - 1) * {emitter.spelling.block_name(block)}")
    with ExitStack() as blocks:
        for condition in conditions if places else ():
            blocks.enter_context(emitter.writer.block(f"if {condition}"))
        for load, place in places.items():
            dims = [dim for dim in load.result.tile.shape if not dim.is_one]
            layout = _layout(emitter, shared.tiles[load])
            arguments = [place, str(left), str(dims.index(Dim.of(block))), layout]
            emitter.writer.statement(emitter.spelling.helper(name), arguments)


def _layout(emitter: RoleEmitter, tile: CopiedTile) -> str:
    """Vectors of 16 bytes along memory, as many lanes side by side as a row has."""
    tiles = [axis for axis in tile.descriptor.axes if not axis.dim.is_one]
    # The view of the tile has its axes in the order of the source.
    fast = [axis.dim for axis in tile.access.tiles].index(tiles[-1].dim)
    width = VECTOR_BYTES // tile.dtype.itemsize
    along = max(1, min(LANES, emitter.schedule.physical(tiles[-1].dim) // width))
    each, lanes, warps = [1, width], [LANES // along, along], [WARPS, 1]
    if fast == 0:
        each, lanes, warps = each[::-1], lanes[::-1], warps[::-1]
    return f"gl.BlockedLayout({each}, {lanes}, {warps}, [{fast}, {1 - fast}])"
