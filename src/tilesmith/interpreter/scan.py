"""Evaluates running combinations along one axis."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tilesmith.interpreter.frame import Frame, Tile
from tilesmith.interpreter.reduction import comparable, from_comparable, summable
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.ops.scan import Scan

_COMBINE: dict[ReduceKind, Callable[[torch.Tensor, int], torch.Tensor]] = {
    # Without a dtype, torch widens small integers to int64; converting back wraps them.
    ReduceKind.SUM: torch.cumsum,
    ReduceKind.PROD: torch.cumprod,
    ReduceKind.MAX: lambda x, axis: torch.cummax(x, axis).values,
    ReduceKind.MIN: lambda x, axis: torch.cummin(x, axis).values,
}


def evaluate_scan(op: Scan, frame: Frame) -> Tile:
    """Combine each element with those before it, or in reverse with those after it."""
    x = frame.tensor(op.x)
    if not x.numel():
        return x
    if op.reduction in (ReduceKind.MAX, ReduceKind.MIN):
        return from_comparable(_scan(comparable(x), op), x.dtype)
    return _scan(summable(x), op).to(x.dtype)


def _scan(x: torch.Tensor, op: Scan) -> torch.Tensor:
    combine = _COMBINE[op.reduction]
    if not op.reverse:
        return combine(x, op.axis)
    return combine(x.flip(op.axis), op.axis).flip(op.axis)
