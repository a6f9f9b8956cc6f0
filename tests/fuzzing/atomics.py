"""What atomic updates of many lanes leave in a tensor, in whatever order they take effect."""

from __future__ import annotations

import math

import torch

from tests.fuzzing.tracked import Tracked, exact_below
from tilesmith.numerics.tolerance import unit_roundoff

_flushed = [0.0]
"""The least number of fp32 that an addition in the memory of a device keeps."""


def expect_device_memory() -> None:
    """From now on units at the memory add: they take subnormal numbers of fp32 for zero."""
    _flushed[0] = torch.finfo(torch.float32).smallest_normal


def lost_in_memory(dtype: torch.dtype) -> float:
    """What one addition there may lose."""
    return _flushed[0] if dtype == torch.float32 else 0.0


def updated(tensor: Tracked, places: tuple[torch.Tensor, ...], given: Tracked, kind: str) -> None:
    """Change ``tensor`` in place; ``places`` has one index tensor for each dimension."""
    strides = torch.empty(tensor.value.shape, device="meta").stride()
    where = sum(
        (x * stride for x, stride in zip(places, strides)), torch.zeros([], dtype=torch.int64)
    )
    where = where.expand(given.value.shape).reshape(-1)
    old, error = tensor.value.reshape(-1), tensor.error.reshape(-1)
    values, doubt = given.value.reshape(-1), given.error.reshape(-1)
    found = _combined(old, where, values, kind)
    if tensor.dtype.is_floating_point:
        bound = _bound_of_sums(
            Tracked(old, error, tensor.dtype), where, Tracked(values, doubt, given.dtype)
        )
    else:
        bound = error.index_add(0, where, doubt)
    tensor.value.copy_(found.reshape(tensor.value.shape))
    tensor.error.copy_(bound.reshape(tensor.error.shape))


def _combined(
    old: torch.Tensor, where: torch.Tensor, values: torch.Tensor, kind: str
) -> torch.Tensor:
    if kind == "add":
        return old.index_add(0, where, values)
    if kind in ("max", "min"):
        return old.scatter_reduce(0, where, values, f"a{kind}")
    bits = torch.arange(torch.iinfo(old.dtype).bits)[:, None]
    given, before = (values.long() >> bits) & 1, (old.long() >> bits) & 1
    given = 1 - given if kind == "and" else given
    count = torch.zeros_like(before).index_add(1, where, given)
    some = count % 2 if kind == "xor" else count.clamp(max=1)
    after = {"and": before & (1 - some), "or": before | some, "xor": before ^ some}[kind]
    return (after << bits).sum(0).to(old.dtype)


def _bound_of_sums(old: Tracked, where: torch.Tensor, given: Tracked) -> torch.Tensor:
    """Sums of floats in any order: exact where all are whole numbers and small."""
    unit = unit_roundoff(old.dtype)
    ones = torch.ones_like(given.error)
    count = torch.zeros_like(old.error).index_add(0, where, ones)
    error = old.error.index_add(0, where, given.error)
    size = old.value.abs().index_add(
        0, where, given.value.abs() + given.error.nan_to_num(posinf=0.0)
    )
    bound = error + (count + 1) * unit * size
    bound = bound + (count + 1) * lost_in_memory(old.dtype)
    bound = torch.where(size < torch.finfo(old.dtype).max, bound, math.inf)
    is_exact = (size < exact_below(old, given, unit=unit)) | (count == 0)
    return torch.where(is_exact, error, bound)
