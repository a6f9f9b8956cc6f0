"""Evaluates reductions and scans along one axis, built-in ones and those with a combination.

Combinations of the user's own take all lanes beside the axis at once, in the order of indices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from itertools import pairwise

import torch

from tilesmith.diagnostics.catalogue import InternalError
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
    x, target, kind = frame.tensor(op.x), op.result.tile, op.reduction
    if x.shape[op.axis] == 0:
        fill = 0 if kind.is_arg else kind.identity(op.x.tile.dtype)
        return from_tensor(_filled(op.result, fill, frame), target)
    dtype = to_torch(target.dtype)
    return from_tensor(_COMBINE[kind](x, op.axis, dtype).to(dtype), target)


def _summable(x: torch.Tensor) -> torch.Tensor:
    """Half types in fp32; unsigned integers as int64, which agrees with them modulo 2^64."""
    return x.view(torch.int64) if x.dtype is torch.uint64 else x.to(_sum_dtype(x.dtype))


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


_COMBINE: dict[ReduceKind, Callable[[torch.Tensor, int, torch.dtype], torch.Tensor]] = {
    ReduceKind.SUM: lambda x, axis, to: torch.sum(_summable(x), axis, dtype=_sum_dtype(to)),
    ReduceKind.PROD: lambda x, axis, to: torch.prod(_summable(x), axis, dtype=_sum_dtype(to)),
    ReduceKind.MAX: lambda x, axis, _: from_comparable(torch.amax(comparable(x), axis), x.dtype),
    ReduceKind.MIN: lambda x, axis, _: from_comparable(torch.amin(comparable(x), axis), x.dtype),
    ReduceKind.ARGMAX: lambda x, axis, _: torch.argmax(comparable(x), axis),
    ReduceKind.ARGMIN: lambda x, axis, _: torch.argmin(comparable(x), axis),
    ReduceKind.ANY: lambda x, axis, _: torch.any(x != 0, axis),
    ReduceKind.ALL: lambda x, axis, _: torch.all(x != 0, axis),
}

_RUNNING: dict[ReduceKind, Callable[[torch.Tensor, int], torch.Tensor]] = {
    # Without a dtype, torch widens small integers to int64; converting back wraps them.
    ReduceKind.SUM: torch.cumsum,
    ReduceKind.PROD: torch.cumprod,
    ReduceKind.MAX: lambda x, axis: torch.cummax(x, axis).values,
    ReduceKind.MIN: lambda x, axis: torch.cummin(x, axis).values,
}


def _scan(op: Scan, frame: Frame) -> Tile:
    """Combine each element with those before it, or in reverse with those after it."""
    x = frame.tensor(op.x)
    if not x.numel():
        return x
    is_extremum = op.reduction in (ReduceKind.MAX, ReduceKind.MIN)
    terms = comparable(x) if is_extremum else _summable(x)
    flipped = (op.axis,) if op.reverse else ()
    found = _RUNNING[op.reduction](terms.flip(flipped), op.axis).flip(flipped)
    return from_comparable(found, x.dtype) if is_extremum else found.to(x.dtype)


Elements = tuple[torch.Tensor, ...]
"""The elements of all operands at one index of the axis."""


def _reduce_with(op: ReduceWith, frame: Frame) -> None:
    """Combine along the axis; an empty axis gives what masked lanes hold."""
    steps = list(zip(*(frame.tensor(x).unbind(op.axis) for x in op.xs)))
    if steps:
        combined = reduce(partial(combine_elements, op.combine), steps)
    else:
        others = op.others or (0,) * len(op.xs)
        combined = tuple(_filled(result, other, frame) for result, other in zip(op.results, others))
    for result, tensor in zip(op.results, combined):
        frame.values[result] = from_tensor(tensor, result.tile)


def _scan_with(op: ScanWith, frame: Frame) -> None:
    """Combine each element with those before it, or in reverse with those after it."""
    xs = [frame.tensor(x) for x in op.xs]
    steps = list(zip(*(x.unbind(op.axis) for x in xs)))
    if not steps:
        frame.values.update(zip(op.results, xs))
        return
    order = range(len(steps))[:: -1 if op.reverse else 1]
    for before, here in pairwise(order):
        steps[here] = combine_elements(op.combine, steps[before], steps[here])
    for result, line in zip(op.results, zip(*steps)):
        frame.values[result] = torch.stack(line, op.axis)


def _filled(result: Value, other: float, frame: Frame) -> torch.Tensor:
    lengths, dtype = frame.lengths(result.tile.shape), to_torch(result.tile.dtype)
    return torch.full(lengths, other, dtype=dtype, device=frame.device)


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
    dtype = to_torch(op.result.tile.dtype)
    if isinstance(op, Cast):
        return values[op.x].view(dtype) if op.bitcast else values[op.x].to(dtype)
    if isinstance(op, Full):
        return torch.full((), op.value, dtype=dtype, device=device)
    raise InternalError(loc=op.loc, problem=f"a {op.name} stands in a combination")


EVALUATORS: Evaluators = {
    Reduce: evaluate_reduce,
    Scan: _scan,
    ReduceWith: _reduce_with,
    ScanWith: _scan_with,
}
