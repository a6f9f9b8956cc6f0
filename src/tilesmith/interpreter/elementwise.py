"""Evaluates elementwise ops and casts."""

from __future__ import annotations

import torch

from tilesmith.dtypes import DType
from tilesmith.interpreter.affine_tile import AffineTile, combine
from tilesmith.interpreter.frame import Evaluators, Frame, Tile, from_tensor
from tilesmith.interpreter.scalar_functions import (
    INTEGER_FUNCTIONS,
    SCALAR_FUNCTIONS_TORCH,
    wrap_integer,
)
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.types import TileType


def evaluate_elementwise(op: Elementwise, frame: Frame) -> Tile:
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


def evaluate_cast(op: Cast, frame: Frame) -> Tile:
    """Convert or reinterpret the element type."""
    tile, target = frame.values[op.x], op.result.tile
    if not isinstance(tile, torch.Tensor) and not op.bitcast:
        result = _cast_integer(tile, target.dtype, frame)
        if result is not None:
            return result
    tensor = frame.as_tensor(tile, op.x.tile)
    return from_tensor(convert(tensor, target, is_bitcast=op.bitcast), target)


def convert(tensor: torch.Tensor, target: TileType, *, is_bitcast: bool) -> torch.Tensor:
    """A tensor with the element type of a tile, by value or by bits."""
    dtype = to_torch(target.dtype)
    return tensor.view(dtype) if is_bitcast else tensor.to(dtype)


def _cast_integer(tile: AffineTile | int, dtype: DType, frame: Frame) -> Tile | None:
    if isinstance(tile, AffineTile):
        return tile if dtype.is_integer and tile.fits(dtype) else None
    if dtype.is_float:
        return torch.full((), tile, dtype=torch.int64, device=frame.device).to(to_torch(dtype))
    return wrap_integer(int(tile), dtype)


EVALUATORS: Evaluators = {Elementwise: evaluate_elementwise, Cast: evaluate_cast}
