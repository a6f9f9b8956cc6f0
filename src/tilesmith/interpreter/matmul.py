"""Evaluates matrix products: exact products, accumulated in the result's type or a wider one."""

from __future__ import annotations

import torch

from tilesmith.interpreter.frame import Evaluators, Frame, Tile
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.ops.matmul import Dot

# Products of two such integers have at most 32 bits, so float64 sums 2^21 of them exactly.
_NARROW_INTEGERS = (torch.int8, torch.uint8, torch.int16)
_MAX_EXACT_TERMS = 1 << 21


def evaluate_dot(op: Dot, frame: Frame) -> Tile:
    """``lhs @ rhs (+ acc)``, always in full precision whatever less the op would allow."""
    result_dtype = to_torch(op.result.tile.dtype)
    lhs, rhs = frame.tensor(op.lhs), frame.tensor(op.rhs)
    acc = None if op.acc is None else frame.tensor(op.acc)
    dtype = _compute_dtype(lhs, rhs, result_dtype)
    # No GPU has a product of 64-bit integers.
    device = torch.device("cpu") if dtype is torch.int64 else lhs.device
    acc = None if acc is None else acc.to(device)
    product = _multiply(lhs.to(device, dtype), rhs.to(device, dtype), acc).to(lhs.device)
    if dtype is torch.float64 and not result_dtype.is_floating_point:
        product = product.to(torch.int64)
    return product.to(result_dtype)


def _compute_dtype(lhs: torch.Tensor, rhs: torch.Tensor, result: torch.dtype) -> torch.dtype:
    if result.is_floating_point:
        return torch.float64 if result is torch.float64 else torch.float32
    is_narrow = lhs.dtype in _NARROW_INTEGERS and rhs.dtype in _NARROW_INTEGERS
    return torch.float64 if is_narrow and lhs.shape[-1] <= _MAX_EXACT_TERMS else torch.int64


def _multiply(lhs: torch.Tensor, rhs: torch.Tensor, acc: torch.Tensor | None) -> torch.Tensor:
    if acc is None:
        return torch.matmul(lhs, rhs)
    acc = acc.to(lhs.dtype)
    if lhs.dim() == 2:
        return torch.addmm(acc, lhs, rhs)
    if lhs.shape[0] == rhs.shape[0]:
        return torch.baddbmm(acc, lhs, rhs)
    return acc + torch.matmul(lhs, rhs)


EVALUATORS: Evaluators = {Dot: evaluate_dot}
