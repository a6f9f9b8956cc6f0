"""New axes come after a conversion, and merged axes are not seen to be merged.

Triton 3.6 lays out a converted tile for one of two loops, and uses that in the other too, where a
new axis stands between the tile and its conversion: "operand does not dominate this use". A loop
that is unrolled is two. Of a merged tile that a product reads turned around it undoes the merge, on
Hopper, and finds no layout in shared memory for all its axes: "Illegal shared layout". Two casts of
bits, which cost nothing, hide the merge (docs/decisions/0012).
"""

from __future__ import annotations

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import Expr, triton_dtype
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.shape import ExpandDims, Permute, Reshape
from tilesmith.ir.types import ONE

HOPPER = 90


def find_expansion(emitter: Emitter, op: Cast) -> ExpandDims | None:
    """What gives the operand new axes, if the result is read in a loop after it."""
    made_by = emitter.uses.defining.get(op.x)
    if op.bitcast or not isinstance(made_by, ExpandDims) or op.result in emitter.uses.inlined:
        return None
    if not emitter.expr(made_by.x).shape or emitter.variables.find_name(op.result):
        return None
    home = emitter.uses.home[op.result]
    places = emitter.uses.positions(op.result)
    is_read_here = all(emitter.uses.owner[place] is home for place in places)
    return None if is_read_here else made_by


def expanded(x: Expr, axes: tuple[int, ...], rank: int) -> Expr:
    """``x`` with new axes of size 1 at these positions."""
    old = iter(x.shape)
    shape = tuple(ONE if axis in axes else next(old) for axis in range(rank))
    return x.subscript(axes, shape)


def unmerged(emitter: Emitter, op: Permute, x: Expr) -> Expr:
    """What is turned around, so that Triton does not see which axes it was merged from."""
    made_by, target = emitter.uses.defining.get(op.x), emitter.schedule.target
    is_merged = isinstance(made_by, Reshape) and made_by.x.tile.rank > op.x.tile.rank
    dtype, is_hopper = op.x.tile.dtype, target.kind == "cuda" and target.capability == HOPPER
    if not (is_merged and is_hopper and dtype.is_float):
        return x
    bits = x.method("to", f"tl.int{dtype.bits}", "bitcast=True")
    return bits.method("to", triton_dtype(dtype), "bitcast=True")
