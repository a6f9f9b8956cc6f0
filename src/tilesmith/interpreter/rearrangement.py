"""Evaluates ops that put elements into other places: joining, picking, gathering, sorting."""

from __future__ import annotations

import torch

from tilesmith.interpreter.frame import Frame, Tile, from_tensor
from tilesmith.interpreter.reduction import comparable, from_comparable
from tilesmith.ir.ops.rearrangement import Gather, Join, Select, Sort


def evaluate_join(op: Join, frame: Frame) -> Tile:
    """Two tiles side by side; scalars and constants take their full shape before."""
    lengths = frame.lengths(op.lhs.tile.shape)
    return torch.stack([frame.tensor(x).expand(lengths) for x in (op.lhs, op.rhs)], -1)


def evaluate_select(op: Select, frame: Frame) -> Tile:
    """One position of an axis."""
    x = frame.tensor(op.x).expand(frame.lengths(op.x.tile.shape))
    return from_tensor(x.select(op.axis, op.position), op.result.tile)


def evaluate_gather(op: Gather, frame: Frame) -> Tile:
    """Elements at given positions."""
    x, index = (frame.tensor(v).expand(frame.lengths(v.tile.shape)) for v in (op.x, op.index))
    positions = index.to(torch.int64)
    if x.dtype.itemsize == 1:
        # torch gathers no 8-bit floats; their bits are moved alike.
        return torch.gather(x.view(torch.uint8), op.axis, positions).view(x.dtype)
    if x.dtype in _SIGNED:
        return torch.gather(x.view(_SIGNED[x.dtype]), op.axis, positions).view(x.dtype)
    return torch.gather(x, op.axis, positions)


_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def evaluate_sort(op: Sort, frame: Frame) -> Tile:
    """Ascending order along the axis."""
    x = frame.tensor(op.x).expand(frame.lengths(op.x.tile.shape))
    return from_comparable(torch.sort(comparable(x), op.axis).values, x.dtype)
