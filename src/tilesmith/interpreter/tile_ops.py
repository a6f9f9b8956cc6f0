"""Evaluates ops of tiles without lanes that meet, and products of matrices.

Those are scalar functions and casts, constants, positions, masks, views, elements put elsewhere.
Products are exact, and accumulated in the result's type or a wider one.
"""

from __future__ import annotations

import torch

from tilesmith.dtypes import DType
from tilesmith.interpreter.access import AffineTile, combine
from tilesmith.interpreter.frame import Evaluators, Frame, Tile, from_tensor
from tilesmith.interpreter.reduction import comparable, from_comparable
from tilesmith.interpreter.scalar_functions import (
    INTEGER_FUNCTIONS,
    SCALAR_FUNCTIONS_TORCH,
    wrap_integer,
)
from tilesmith.interpreter.torch_dtypes import as_movable, to_torch
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.rearrangement import Gather, Join, Select, Sort
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.types import Value

# Products of two such integers have at most 32 bits, so float64 sums 2^21 of them exactly.
_NARROW_INTEGERS = (torch.int8, torch.uint8, torch.int16)
_MAX_EXACT_TERMS = 1 << 21


def _elementwise(op: Elementwise, frame: Frame) -> Tile:
    """Apply the scalar function to tensors, to Python integers, or to affine tiles as a whole."""
    values = frame.values
    args = [values[arg] for arg in op.args]
    if not isinstance(args[-1], torch.Tensor) and not isinstance(args[0], torch.Tensor):
        result = _of_integers(op, args)
        if result is not None:
            return result
    elif op.fn == "where" and isinstance(args[0], bool):
        return args[1] if args[0] else args[2]
    tensors = [frame.as_tensor(arg, value.tile) for arg, value in zip(args, op.args)]
    return from_tensor(SCALAR_FUNCTIONS_TORCH[op.fn](*tensors), op.result.tile)


def _of_integers(op: Elementwise, args: list[Tile]) -> Tile | None:
    """The result without torch, where there is a rule for it."""
    dtype = op.result.tile.dtype
    if isinstance(args[0], AffineTile):
        if len(args) == 2 and isinstance(args[1], AffineTile) and dtype.is_integer:
            return combine(op.fn, args[0], args[1], dtype)
        return None
    function = INTEGER_FUNCTIONS.get(op.fn)
    return None if function is None else wrap_integer(function(*args), dtype)


def _cast(op: Cast, frame: Frame) -> Tile:
    tile, target = frame.values[op.x], op.result.tile
    if not isinstance(tile, torch.Tensor) and not op.bitcast:
        result = _cast_integer(tile, target.dtype, frame)
        if result is not None:
            return result
    tensor, dtype = frame.as_tensor(tile, op.x.tile), to_torch(target.dtype)
    return from_tensor(tensor.view(dtype) if op.bitcast else tensor.to(dtype), target)


def _cast_integer(tile: AffineTile | int, dtype: DType, frame: Frame) -> Tile | None:
    if isinstance(tile, AffineTile):
        return tile if dtype.is_integer and tile.fits(dtype) else None
    if dtype.is_float:
        return torch.full((), tile, dtype=torch.int64, device=frame.device).to(to_torch(dtype))
    return wrap_integer(int(tile), dtype)


def _full(op: Full, frame: Frame) -> Tile:
    """One constant everywhere, stored once."""
    tile_type = op.result.tile
    dtype = tile_type.dtype
    if dtype.is_integer:
        value = wrap_integer(int(op.value), dtype)
        return AffineTile(frame.lengths(tile_type.shape), value) if tile_type.shape else value
    if dtype.is_bool and not tile_type.shape:
        return bool(op.value)
    constant = torch.full((), op.value, dtype=to_torch(dtype), device=frame.device)
    return constant.expand(frame.lengths(tile_type.shape)) if tile_type.shape else constant


def _expand_dims(op: ExpandDims, frame: Frame) -> Tile:
    tile = frame.values[op.x]
    if not op.axes:
        return tile
    shape = frame.lengths(op.result.tile.shape)
    if isinstance(tile, int):
        return AffineTile(shape, tile) if op.x.tile.dtype.is_integer else _reshape(op, frame)
    if isinstance(tile, AffineTile):
        return tile.expand_dims(op.axes, shape)
    for axis in op.axes:
        tile = tile.unsqueeze(axis)
    return tile


def _broadcast(op: Broadcast, frame: Frame) -> Tile:
    tile = frame.values[op.x]
    if isinstance(tile, int):
        return tile
    shape = frame.lengths(op.result.tile.shape)
    if not isinstance(tile, AffineTile):
        return tile.expand(shape)
    if tile.axis is not None and tile.shape[tile.axis] != shape[tile.axis]:
        # The one element along the axis is repeated, so the tile no longer varies along it.
        return AffineTile(shape, tile.start)
    return tile.with_shape(shape)


def _reshape(op: Reshape | ExpandDims, frame: Frame) -> Tile:
    """Row-major reinterpretation; a constant stays one."""
    tile, target = frame.values[op.x], op.result.tile
    if isinstance(tile, AffineTile) and tile.axis is None and target.shape:
        return AffineTile(frame.lengths(target.shape), tile.start)
    return from_tensor(frame.tensor(op.x).reshape(frame.lengths(target.shape)), target)


def _permute(op: Permute, frame: Frame) -> Tile:
    tile = frame.values[op.x]
    return tile if isinstance(tile, int) else tile.permute(op.order)


def _whole(value: Value, frame: Frame) -> torch.Tensor:
    """A tile with all its lanes: scalars and constants take their full shape."""
    return frame.tensor(value).expand(frame.lengths(value.tile.shape))


def _join(op: Join, frame: Frame) -> Tile:
    lengths = frame.lengths(op.lhs.tile.shape)
    return torch.stack([frame.tensor(x).expand(lengths) for x in (op.lhs, op.rhs)], -1)


def _select(op: Select, frame: Frame) -> Tile:
    return from_tensor(_whole(op.x, frame).select(op.axis, op.position), op.result.tile)


def _gather(op: Gather, frame: Frame) -> Tile:
    x, positions = _whole(op.x, frame), _whole(op.index, frame).to(torch.int64)
    return torch.gather(as_movable(x), op.axis, positions).view(x.dtype)


def _sort(op: Sort, frame: Frame) -> Tile:
    x = _whole(op.x, frame)
    return from_comparable(torch.sort(comparable(x), op.axis).values, x.dtype)


def evaluate_dot(op: Dot, frame: Frame) -> Tile:
    """``lhs @ rhs (+ acc)``, always in full precision whatever less the op would allow."""
    result_dtype = to_torch(op.result.tile.dtype)
    lhs, rhs = frame.tensor(op.lhs), frame.tensor(op.rhs)
    if result_dtype.is_floating_point:
        dtype = torch.float64 if result_dtype is torch.float64 else torch.float32
    else:
        is_narrow = lhs.dtype in _NARROW_INTEGERS and rhs.dtype in _NARROW_INTEGERS
        is_exact = is_narrow and lhs.shape[-1] <= _MAX_EXACT_TERMS
        dtype = torch.float64 if is_exact else torch.int64
    # No GPU has a product of 64-bit integers.
    device = torch.device("cpu") if dtype is torch.int64 else lhs.device
    acc = None if op.acc is None else frame.tensor(op.acc).to(device, dtype)
    product = _multiply(lhs.to(device, dtype), rhs.to(device, dtype), acc).to(lhs.device)
    if dtype is torch.float64 and not result_dtype.is_floating_point:
        product = product.to(torch.int64)
    return product.to(result_dtype)


def _multiply(lhs: torch.Tensor, rhs: torch.Tensor, acc: torch.Tensor | None) -> torch.Tensor:
    if acc is None:
        return torch.matmul(lhs, rhs)
    if lhs.dim() == 2:
        return torch.addmm(acc, lhs, rhs)
    if lhs.shape[0] == rhs.shape[0]:
        return torch.baddbmm(acc, lhs, rhs)
    return acc + torch.matmul(lhs, rhs)


EVALUATORS: Evaluators = {
    Elementwise: _elementwise,
    Cast: _cast,
    Full: _full,
    # The indices of the valid lanes.
    TileIndex: lambda op, frame: AffineTile((frame.extents[op.block],), frame.values[op.begin], 0),
    Arange: lambda op, frame: AffineTile(frame.lengths(op.result.tile.shape), 0, 0),
    # The configured size, whatever the present tile's length.
    BlockSize: lambda op, frame: frame.sizes[op.block],
    # Tiles hold only valid lanes.
    Mask: lambda op, frame: frame.values[op.x],
    ExpandDims: _expand_dims,
    Broadcast: _broadcast,
    Reshape: _reshape,
    Permute: _permute,
    Join: _join,
    Select: _select,
    Gather: _gather,
    Sort: _sort,
    Dot: evaluate_dot,
}
