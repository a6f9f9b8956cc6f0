"""Sums and products of fp64 with the rounding errors carried along, in about 100 bits.

For kernels in fp64, whose own sums are no truth: each sum, and each product of matrices, is rounded
once (where terms cancel by more than 50 bits, a few last bits are lost).
After Dekker (1971) and Ogita, Rump and Oishi (2005).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilesmith.interpreter.frame import Frame, Tile, from_tensor
from tilesmith.interpreter.matmul import evaluate_dot
from tilesmith.interpreter.reduction import evaluate_reduce
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.indexing import BlockSize
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.reduction import Reduce, ReduceKind
from tilesmith.ir.traversal import walk_function

_SPLITTER = 2.0**27 + 1
Pair = tuple[torch.Tensor, torch.Tensor]
"""A value as the unevaluated sum of two, the second of which is a rounding error of the first."""


def exact_sum(left: torch.Tensor, right: torch.Tensor) -> Pair:
    """The sum and its rounding error, exactly."""
    total = left + right
    part = total - left
    return total, (left - (total - part)) + (right - part)


def exact_product(left: torch.Tensor, right: torch.Tensor) -> Pair:
    """The product and its rounding error, exactly unless it overflows or underflows."""
    product = left * right
    (a, b), (c, d) = _halves(left), _halves(right)
    return product, ((a * c - product) + a * d + b * c) + b * d


def compensated_sum(values: torch.Tensor, axis: int) -> torch.Tensor:
    """The sum along an axis, rounded once."""
    high = values.movedim(axis, 0)
    low = torch.zeros_like(high)
    while high.size(0) > 1:
        half = high.size(0) // 2
        rest = (high[2 * half :], low[2 * half :])
        total, error = exact_sum(high[:half], high[half : 2 * half])
        low = torch.cat([low[:half] + low[half : 2 * half] + error, rest[1]])
        high = torch.cat([total, rest[0]])
    return _finite_or_plain(high[0] + low[0], values.sum(axis))


def compensated_product(
    lhs: torch.Tensor, rhs: torch.Tensor, acc: torch.Tensor | None = None
) -> torch.Tensor:
    """``lhs @ rhs (+ acc)``, rounded once."""
    plain = torch.matmul(lhs, rhs)
    high = torch.zeros_like(plain) if acc is None else acc.clone()
    low = torch.zeros_like(high)
    for k in range(lhs.size(-1)):
        product, error = exact_product(lhs[..., :, k, None], rhs[..., k, None, :])
        high, lost = exact_sum(high, product)
        low = low + (error + lost)
    return _finite_or_plain(high + low, plain if acc is None else plain + acc)


def whole_loops(function: Function, sizes: Mapping[str, int]) -> dict[str, int]:
    """Block sizes with which loops run once, so that sums are not rounded between iterations."""
    ops = list(walk_function(function))
    observed = {op.block for op in ops if isinstance(op, BlockSize)}
    looped = {name for op in ops if isinstance(op, Loop) for name in op.blocks if name}
    blocks = [b for b in function.blocks if b.fixed is None and b.extent is not None]
    whole = {b.name: b.extent or 1 for b in blocks if b.name in looped - observed}
    return {**sizes, **whole}


def _evaluate_dot(op: Dot, frame: Frame) -> Tile:
    operands = [op.lhs, op.rhs, *([] if op.acc is None else [op.acc])]
    tensors = [frame.tensor(value) for value in operands]
    if any(tensor.dtype != torch.float64 for tensor in tensors):
        return evaluate_dot(op, frame)
    return compensated_product(*tensors)


def _evaluate_reduce(op: Reduce, frame: Frame) -> Tile:
    x = frame.tensor(op.x)
    is_sum = op.reduction is ReduceKind.SUM and x.dtype == torch.float64
    if not is_sum or x.shape[op.axis] == 0:
        return evaluate_reduce(op, frame)
    return from_tensor(compensated_sum(x, op.axis), op.result.tile)


COMPENSATED: Mapping[type[Operation], Callable[[Any, Any], Any]] = {
    Dot: _evaluate_dot,
    Reduce: _evaluate_reduce,
}
"""What evaluates sums and products in place of the interpreter's own rules."""


def _halves(value: torch.Tensor) -> Pair:
    """Two numbers of at most 26 bits each that add up to the value."""
    scaled = value * _SPLITTER
    high = scaled - (scaled - value)
    return high, value - high


def _finite_or_plain(careful: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
    """Where numbers overflow or are infinite, error terms are not numbers."""
    return torch.where(careful.isfinite(), careful, plain)
