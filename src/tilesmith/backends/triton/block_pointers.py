"""Block pointers: Triton computes addresses and bounds checks. Gone from Triton 3.9 on."""

from __future__ import annotations

from tilesmith.backends.triton.accesses import offset
from tilesmith.backends.triton.block_accesses import BlockAccess, BlockAxis
from tilesmith.backends.triton.emit import Emitter
from tilesmith.backends.triton.expressions import Expr, binary, call
from tilesmith.ir.values import Value

REMOVED_IN = (3, 9)


def has_block_pointer(emitter: Emitter, access: BlockAccess) -> bool:
    """Whether this Triton has block pointers and they can make this access."""
    dtype = access.tensor.tensor.dtype
    is_supported = emitter.triton_version < REMOVED_IN and not dtype.is_bool and dtype.bits >= 8
    # fp8 blocks fail to compile on 3.8.
    is_supported = is_supported and not (dtype.is_float and dtype.bits == 8)
    return is_supported and bool(access.tiles)


def block_pointer(emitter: Emitter, access: BlockAccess, indices: tuple[Value, ...]) -> Expr:
    """``tl.make_block_ptr`` over the dimensions that have a tile; the others move the base."""
    tiles = access.tiles
    fixed = tuple(indices[axis.position] if axis.dim.is_one else None for axis in access.axes)
    base = emitter.expr(access.tensor)
    elements = offset(emitter, access.tensor, fixed)
    if elements.constant != 0:
        base = binary("+", base, elements)
    spelling = emitter.spelling
    return call(
        "tl.make_block_ptr",
        base,
        _tuple([spelling.extent(axis.size) for axis in tiles]),
        _tuple([spelling.extent(axis.stride) for axis in tiles]),
        _tuple([axis.start for axis in tiles]),
        _tuple([spelling.dim(axis.dim) for axis in tiles]),
        f"order={_tuple(_order(tiles))}",
    )


def boundary_check(access: BlockAccess) -> list[str]:
    """The arguments that make Triton check the axes that may be partial."""
    checked = [i for i, axis in enumerate(access.tiles) if axis.is_partial]
    return [f"boundary_check={_tuple(checked)}"] if checked else []


def _order(tiles: tuple[BlockAxis, ...]) -> list[int]:
    """Axes from the fastest in memory to the slowest, as far as strides tell."""

    def key(axis: int) -> tuple[int, int]:
        stride = tiles[axis].stride
        return (stride if isinstance(stride, int) else 1 << 62, -axis)

    return sorted(range(len(tiles)), key=key)


def _tuple(items: list[Expr] | list[int]) -> str:
    return f"({', '.join(map(str, items))}{',' if len(items) == 1 else ''})"
