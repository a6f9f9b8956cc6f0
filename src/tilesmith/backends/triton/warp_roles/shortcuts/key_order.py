"""Keys in an order in which rounded weights are the next product's operand where they lie.

A matrix unit leaves two neighbours of every eight columns with a lane; as an operand of 8 bits it
wants four neighbours of every sixteen there, so that lanes would have to exchange half of what
they hold. But a sum over keys has no order: with rows of keys copied as

    0 1 4 5 8 9 12 13 2 3 6 7 10 11 14 15

of every sixteen, columns 2t, 2t + 1, 2t + 8 and 2t + 9 of the scores are keys 4t to 4t + 3, which
is what the lane needs for values in their usual order. The copy engine does that by itself: for
it, rows are chunks of two by four by two, walked in another order. Positions along the loop follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from typing_extensions import override

from tilesmith.backends.triton.emission.spelling import Expr
from tilesmith.backends.triton.ops.accesses import BlockAxis
from tilesmith.backends.triton.warp_roles.copies import CopiedTile
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter
from tilesmith.backends.triton.warp_roles.order import find_vectors
from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.dtypes import F8E4M3
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Arange, Mask
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.types import Dim

CHUNK = 16
PARTS = (2, 4, 2)
"""Of a chunk's rows, from the slowest in shared memory; rows between neighbours of each part."""
STEPS = (2, 4, 1)
_ROUNDED = """cvt.rn.satfinite.e4m3x2.f32 low, $2, $1;
        cvt.rn.satfinite.e4m3x2.f32 high, $4, $3;"""
_JOINED = """cvt.u32.u16 first, low;
        cvt.u32.u16 next, high;
        shl.b32 next, next, 16;
        or.b32"""
"""By arithmetic: where both halves are the same, as those of lanes that are left out, ptxas 12.8
and 12.9 merge ``{low, high}`` with a register that has something else."""
_QUADS = """    rows: gl.constexpr = x.shape[0]
    chunks: gl.constexpr = x.shape[1] // 16
    quads = x.reshape([rows, chunks, 2, 4, 2]).permute((0, 1, 3, 2, 4))
    even, odd = gl.split(quads)
    low_even, high_even = gl.split(even)
    low_odd, high_odd = gl.split(odd)
    args = [low_even, low_odd, high_even, high_odd]"""
_PACKED = 'gl.inline_asm_elementwise(packed, "=r,r,r,r,r", args, gl.int32, is_pure=True, pack=1)'
FP8_FUNCTIONS = {
    "_pack_fp8": f'''
@gluon.jit
def _pack_fp8(x):
    """Rounded to fp8, four neighbours as one number of 32 bits: what an operand's lane holds."""
{_QUADS}
    packed: gl.constexpr = """{{
        .reg .b16 low, high;
        .reg .b32 both, lane, first, next, from_low, from_high;
        .reg .pred is_low;
        {_ROUNDED}
        {_JOINED} both, first, next;
        mov.u32 lane, %laneid;
        and.b32 next, lane, 2;
        setp.eq.u32 is_low, next, 0;
        shl.b32 first, lane, 1;
        and.b32 first, first, 2;
        and.b32 next, lane, 28;
        or.b32 first, first, next;
        or.b32 next, first, 1;
        shfl.sync.idx.b32 from_low, both, first, 31, -1;
        shfl.sync.idx.b32 from_high, both, next, 31, -1;
        selp.b32 lane, 0x5410, 0x7632, is_low;
        prmt.b32 $0, from_low, from_high, lane;
    }}"""
    return {_PACKED}
''',
    **{
        name: f'''
@gluon.jit
def {name}(x):
    """Rounded to fp8, four keys as one number of 32 bits: what a lane has is what it needs."""
{_QUADS}
    packed: gl.constexpr = """{{
        .reg .b16 low, high;
        .reg .b32 first, next;
        {_ROUNDED}
        {joined};
    }}"""
    return {_PACKED}
'''
        for name, joined in (
            ("_pack_ordered_fp8", f"{_JOINED} $0, first, next"),
            ("_pack_whole_fp8", "mov.b32 $0, {low, high}"),
        )
    },
}
"""Functions of a module, by name: weights as an operand, for keys in order and in ours, and in
tiles of which no lane is left out."""


def ordered_pack_name(emitter: RoleEmitter, ops: Iterable[Operation]) -> str:
    """The function that rounds weights to fp8 where keys are in this order."""
    is_selected = any(
        (isinstance(op, Elementwise) and op.fn == "where")
        or (isinstance(op, Mask) and op not in emitter.facts.identities)
        for op in ops
    )
    return "_pack_ordered_fp8" if is_selected else "_pack_whole_fp8"


def in_key_order(lanes: Expr) -> Expr:
    """Which key of a tile each column of scores is."""
    moved = [lanes.infix("&", Expr("-15")), *(lanes.infix("&", Expr(bits)) for bits in "68")]
    return moved[0] + moved[1] * 2 + moved[2] // 4


@dataclass(frozen=True)
class OrderedTile(CopiedTile):
    """Keys of a tile as chunks of rows, in the order of this module."""

    @override
    def position(self, group: str) -> str:
        *outer, _ = self.descriptor.axes
        (keys,) = (axis for axis in outer if not axis.dim.is_one)
        start = keys.start // CHUNK
        for axis in outer:
            if axis is not keys:
                start += axis.start * _chunks_between(axis, keys)
        return f"[{start}, 0, 0, 0, 0]"

    @override
    def view(self, buffer: str, *, is_turned: bool = False) -> str:
        tiles = [axis for axis in self.descriptor.axes if not axis.dim.is_one]
        whole = f"{buffer}.reshape({[self.block[0] * CHUNK, self.block[-1]]})"
        is_turned ^= list(self.access.tiles) != tiles
        return f"{whole}.permute((1, 0))" if is_turned else whole


def _chunks_between(axis: BlockAxis, keys: BlockAxis) -> int:
    """How many chunks of keys further the next index of another axis is; 0: not whole ones."""
    assert isinstance(axis.stride, int)
    assert isinstance(keys.stride, int)
    count, rest = divmod(axis.stride, CHUNK * keys.stride)
    return 0 if rest else count


def reorder_keys(
    plan: RolePlan, emitter: RoleEmitter, tiles: Mapping[Load, CopiedTile]
) -> dict[Load, CopiedTile]:
    """Tiles of keys in this order, all of them or none."""
    if not _may_reorder(plan):
        return {}
    loads = list(dict.fromkeys(product.rhs for product in plan.early))
    names = [tiles[load].descriptor.name for load in tiles]
    found = {load: _reorder(plan, tiles[load]) for load in loads}
    made = {load: tile for load, tile in found.items() if tile is not None}
    if len(made) < len(loads) or any(names.count(t.descriptor.name) > 1 for t in made.values()):
        return {}
    for tile in made.values():
        _describe(emitter, tile)
    return dict(made)


def _may_reorder(plan: RolePlan) -> bool:
    """Whether nothing but sums of packed weights over keys, and positions, knows their order."""
    keys = Dim.of(plan.loop.blocks[0])
    late = {load for product in plan.late for load in (product.lhs, product.rhs)}
    kinds = {p.dot.lhs.tile.dtype for p in plan.late if p.lhs is None}
    are_alone = all(
        product.rhs in plan.ring
        and product.rhs not in late
        and product.dot.result.tile.shape[-1] == keys
        and product.lhs in plan.kept
        for product in plan.early
    )
    is_counted = any(isinstance(op, Arange) for op in plan.loop.body.ops)
    is_carried = any(keys in value.tile.shape for value in plan.loop.carried)
    return kinds == {F8E4M3} and are_alone and not (is_counted or is_carried or find_vectors(plan))


def _reorder(plan: RolePlan, tile: CopiedTile) -> OrderedTile | None:
    """A tile of keys in this order; None where the copy engine has no axes left for that."""
    *outer, width = tile.descriptor.axes
    keys = [axis for axis in outer if axis.dim == Dim.of(plan.loop.blocks[0])]
    if len(keys) != 1 or not all(axis.dim.is_one for axis in outer if axis is not keys[0]):
        return None
    are_known = all(isinstance(n, int) for axis in outer for n in (axis.size, axis.stride))
    rows = tile.block[outer.index(keys[0])]
    if not are_known or width.stride != 1 or rows % CHUNK or int(keys[0].size) % CHUNK:
        return None
    if not all(_chunks_between(axis, keys[0]) for axis in outer if axis is not keys[0]):
        return None
    block = (rows // CHUNK, *PARTS, tile.block[-1])
    return OrderedTile(tile.dtype, tile.descriptor, tile.access, block, tile.rows)


def _describe(emitter: RoleEmitter, tile: OrderedTile) -> None:
    """Tell the copy engine of chunks instead of rows."""
    *outer, _ = tile.descriptor.axes
    (keys,) = (axis for axis in outer if not axis.dim.is_one)
    chunks = int(keys.size) // CHUNK
    for axis in outer:
        if axis is not keys:
            chunks += (int(axis.size) - 1) * _chunks_between(axis, keys)
    stride = int(keys.stride)
    described = emitter.spelling.needs.descriptions
    (item,) = (item for item, name in described.items() if name == tile.descriptor.name)
    ordered = replace(
        item,
        shape=(str(chunks), *map(str, PARTS), item.shape[-1]),
        strides=(CHUNK * stride, *(step * stride for step in STEPS), 1),
        block=tile.block,
        layout=tile.layout,
    )
    described[ordered] = described.pop(item)
