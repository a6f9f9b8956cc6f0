"""Evaluates reductions and scans along one axis, built-in ones and those with a combination.

Combinations of the user's own take all lanes beside the axis at once, in the order of indices.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch

from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.interpreter.elementwise import convert
from tilesmith.interpreter.frame import Evaluators, Frame, Tile, from_tensor
from tilesmith.interpreter.scalar_functions import SCALAR_FUNCTIONS_TORCH
from tilesmith.interpreter.torch_dtypes import FLOAT8, SIGNED_OF_WIDE_UNSIGNED, to_torch
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.reduction import Reduce, ReduceKind, ReduceWith, Scan, ScanWith
from tilesmith.ir.types import Value

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

_RUNNING: dict[ReduceKind, Callable[[torch.Tensor, int], torch.Tensor]] = {
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
    combine = _RUNNING[op.reduction]
    if not op.reverse:
        return combine(x, op.axis)
    return combine(x.flip(op.axis), op.axis).flip(op.axis)


Elements = tuple[torch.Tensor, ...]
"""The elements of all operands at one index of the axis."""


def evaluate_reduce_with(op: ReduceWith, frame: Frame) -> None:
    """Combine along the axis; an empty axis gives what masked lanes hold."""
    steps = _elements_along([frame.tensor(x) for x in op.xs], op.axis)
    if steps:
        combined = steps[0]
        for step in steps[1:]:
            combined = combine_elements(op.combine, combined, step)
    else:
        others = op.others or (0,) * len(op.xs)
        combined = tuple(_filled(result, other, frame) for result, other in zip(op.results, others))
    for result, tensor in zip(op.results, combined):
        frame.values[result] = from_tensor(tensor, result.tile)


def evaluate_scan_with(op: ScanWith, frame: Frame) -> None:
    """Combine each element with those before it, or in reverse with those after it."""
    xs = [frame.tensor(x) for x in op.xs]
    steps = _elements_along(xs, op.axis)
    if not steps:
        frame.values.update(zip(op.results, xs))
        return
    order = list(reversed(range(len(steps)))) if op.reverse else list(range(len(steps)))
    for before, here in pairwise(order):
        steps[here] = combine_elements(op.combine, steps[before], steps[here])
    for result, line in zip(op.results, zip(*steps)):
        frame.values[result] = torch.stack(line, op.axis)


def _elements_along(xs: list[torch.Tensor], axis: int) -> list[Elements]:
    return list(zip(*(x.unbind(axis) for x in xs)))


def _filled(result: Value, other: float, frame: Frame) -> torch.Tensor:
    tile = result.tile
    return torch.full(
        frame.lengths(tile.shape), other, dtype=to_torch(tile.dtype), device=frame.device
    )


def combine_elements(combine: Region, left: Elements, right: Elements) -> Elements:
    """The combination of elements, all lanes at once."""
    values = dict(zip(combine.args, (*left, *right)))
    for op in combine.ops:
        if isinstance(op, Yield):
            break
        values[op.result] = _apply_op(op, values, left[0].device)
    return tuple(values[value].expand_as(like) for value, like in zip(combine.yielded, left))


def _apply_op(
    op: Operation, values: dict[Value, torch.Tensor], device: torch.device
) -> torch.Tensor:
    if isinstance(op, Elementwise):
        return SCALAR_FUNCTIONS_TORCH[op.fn](*(values[arg] for arg in op.args))
    if isinstance(op, Cast):
        return convert(values[op.x], op.result.tile, is_bitcast=op.bitcast)
    if isinstance(op, Full):
        return torch.full((), op.value, dtype=to_torch(op.result.tile.dtype), device=device)
    raise InternalError(loc=op.loc, problem=f"a {op.name} stands in a combination")


EVALUATORS: Evaluators = {
    Reduce: evaluate_reduce,
    Scan: evaluate_scan,
    ReduceWith: evaluate_reduce_with,
    ScanWith: evaluate_scan_with,
}
