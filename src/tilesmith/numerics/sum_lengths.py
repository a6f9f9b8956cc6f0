"""What the rounding errors of a function grow with: lengths of sums, coarse intermediates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from tilesmith.dtypes import F8E4M3, F16
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.ops.reduction import Reduce, ReduceKind, ReduceWith, Scan, ScanWith
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Dim

_SUMS = (ReduceKind.SUM.value, ReduceKind.PROD.value)
_UNKNOWN_EXTENT = 1 << 12


def longest_sum(function: Function, arguments: Mapping[str, Any]) -> int:
    """How many roundings one element may have behind it: the axes summed over, one after another.

    Of a sum over several axes at once, all but one are added up side by side in some form.
    """
    dims = set(_summed_dims(function))
    known = {block.name: block.extent or _UNKNOWN_EXTENT for block in function.blocks}
    known |= {size.name: int(arguments.get(size.name, size.hint)) for size in function.sizes}
    symbols = {factor for dim in dims for factor in dim.factors if isinstance(factor, str)}
    constants = [dim.constant or 1 for dim in dims if not dim.symbols]
    lengths = [known[symbol] for symbol in symbols if symbol in known]
    return max(1, sum(lengths) + max(constants, default=0))


def coarse_types(function: Function, *, is_truth_known: bool) -> tuple[torch.dtype, ...]:
    """Types as coarse as intermediate values may be without the native run showing it.

    Hardware may add products of 8-bit floats more coarsely than in fp32. Without an fp64 form of
    the function, no run shows what the roundings that it asks for do.
    """
    ops = list(walk_function(function))
    products = [op.lhs.tile.dtype for op in ops if isinstance(op, Dot)]
    coarse = [F16 for dtype in products if dtype.is_float and dtype.bits == F8E4M3.bits][:1]
    if not is_truth_known:
        rounded = [op.dtype for op in ops if isinstance(op, Cast)]
        narrow = [dtype for dtype in rounded if dtype.is_low_precision_float]
        coarse += sorted(narrow, key=lambda dtype: dtype.precision)[:1]
    return tuple(map(to_torch, coarse))


def _summed_dims(function: Function) -> Iterator[Dim]:
    for op in walk_function(function):
        yield from _dims_of(op)
        if isinstance(op, Grid) and _has_atomics(op):
            yield from (Dim.of(block) for block in op.blocks if block)


def _dims_of(op: Operation) -> Iterator[Dim]:
    if isinstance(op, (Reduce, Scan)) and op.kind in _SUMS:
        yield op.x.tile.shape[op.axis]
    elif isinstance(op, (ReduceWith, ScanWith)):
        yield op.xs[0].tile.shape[op.axis]
    elif isinstance(op, Dot):
        yield op.lhs.tile.shape[-1]
    elif isinstance(op, Loop) and any(value.tile.dtype.is_float for value in op.init):
        yield from (Dim.of(block) for block in op.blocks if block)


def _has_atomics(grid: Grid) -> bool:
    waiting: list[Operation] = list(grid.body.ops)
    for op in waiting:
        waiting.extend(inner for region in op.regions() for inner in region.ops)
    return any(isinstance(op, Atomic) for op in waiting)
