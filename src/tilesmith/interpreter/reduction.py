"""Evaluates reductions along one axis."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tilesmith.interpreter.frame import Frame, Tile, from_tensor
from tilesmith.interpreter.torch_dtypes import FLOAT8, SIGNED_OF_WIDE_UNSIGNED, to_torch
from tilesmith.ir.ops.reduction import Reduce, ReduceKind

_SIGN_BIT = -(1 << 63)
_HALF = frozenset({torch.float16, torch.bfloat16, *FLOAT8})


def evaluate_reduce(op: Reduce, frame: Frame) -> Tile:
    """Combine along the axis; an empty axis gives the identity."""
    x, target = frame.tensor(op.x), op.result.tile
    kind = op.reduction
    if x.shape[op.axis] == 0:
        fill = 0 if kind.is_arg else kind.identity(op.x.tile.dtype)
        lengths = frame.lengths(target.shape)
        result = torch.full(lengths, fill, dtype=to_torch(target.dtype), device=x.device)
    else:
        result = _COMBINE[kind](x, op.axis, to_torch(target.dtype))
    return from_tensor(result, target)


def _sum(x: torch.Tensor, axis: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.sum(summable(x), axis, dtype=_sum_dtype(dtype)).to(dtype)


def _prod(x: torch.Tensor, axis: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.prod(summable(x), axis, dtype=_sum_dtype(dtype)).to(dtype)


def summable(x: torch.Tensor) -> torch.Tensor:
    """Half types in fp32; unsigned integers as int64, which agrees with them modulo 2^64."""
    if x.dtype in _HALF:
        return x.float()
    if x.dtype is torch.uint64:
        return x.view(torch.int64)
    return x.to(torch.int64) if x.dtype in SIGNED_OF_WIDE_UNSIGNED else x


def _sum_dtype(dtype: torch.dtype) -> torch.dtype:
    if dtype in _HALF:
        return torch.float32
    return torch.int64 if dtype in SIGNED_OF_WIDE_UNSIGNED else dtype


def comparable(x: torch.Tensor) -> torch.Tensor:
    """The same order among types that torch compares."""
    if x.dtype is torch.uint64:
        return x.view(torch.int64) ^ _SIGN_BIT
    if x.dtype in FLOAT8:
        return x.float()
    if x.dtype is torch.bool:
        return x.to(torch.uint8)
    return x.to(torch.int64) if x.dtype in SIGNED_OF_WIDE_UNSIGNED else x


def from_comparable(result: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Elements of ``comparable(x)`` in the type of ``x``."""
    if dtype is torch.uint64:
        return (result ^ _SIGN_BIT).view(torch.uint64)
    return result.to(dtype)


def _extremum(
    reduce: Callable[[torch.Tensor, int], torch.Tensor],
) -> Callable[[torch.Tensor, int, torch.dtype], torch.Tensor]:
    def apply(x: torch.Tensor, axis: int, dtype: torch.dtype) -> torch.Tensor:
        return from_comparable(reduce(comparable(x), axis), x.dtype).to(dtype)

    return apply


def _argmax(x: torch.Tensor, axis: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.argmax(comparable(x), axis).to(dtype)


def _argmin(x: torch.Tensor, axis: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.argmin(comparable(x), axis).to(dtype)


def _any(x: torch.Tensor, axis: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.any(x != 0, axis).to(dtype)


def _all(x: torch.Tensor, axis: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.all(x != 0, axis).to(dtype)


_COMBINE: dict[ReduceKind, Callable[[torch.Tensor, int, torch.dtype], torch.Tensor]] = {
    ReduceKind.SUM: _sum,
    ReduceKind.PROD: _prod,
    ReduceKind.MAX: _extremum(torch.amax),
    ReduceKind.MIN: _extremum(torch.amin),
    ReduceKind.ARGMAX: _argmax,
    ReduceKind.ARGMIN: _argmin,
    ReduceKind.ANY: _any,
    ReduceKind.ALL: _all,
}
