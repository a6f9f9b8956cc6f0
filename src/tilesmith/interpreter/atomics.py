"""Evaluates atomics: each lane takes effect once, in row-major order, giving the value before."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tilesmith.interpreter.access import GatherAccess, SliceAccess
from tilesmith.interpreter.frame import Frame, Tile, from_tensor
from tilesmith.interpreter.memory import resolve_access
from tilesmith.interpreter.scalar_functions import SCALAR_FUNCTIONS_TORCH
from tilesmith.ir.ops.memory import Atomic

_COMBINE: dict[str, Callable[..., torch.Tensor]] = {
    "add": SCALAR_FUNCTIONS_TORCH["add"],
    "and": SCALAR_FUNCTIONS_TORCH["and"],
    "or": SCALAR_FUNCTIONS_TORCH["or"],
    "xor": SCALAR_FUNCTIONS_TORCH["xor"],
    "max": SCALAR_FUNCTIONS_TORCH["maximum"],
    "min": SCALAR_FUNCTIONS_TORCH["minimum"],
    "xchg": lambda _, value: value,
}
# Types for which torch adds to repeated indices.
_ACCUMULATING = frozenset(
    {torch.float32, torch.float64, torch.int32, torch.int64, torch.uint32, torch.uint64}
)


def evaluate_atomic(op: Atomic, frame: Frame) -> Tile:
    """Read, modify, write."""
    tensor, target = frame.values[op.tensor], op.result.tile
    access = resolve_access(op, op.value.tile.shape, frame)
    if access is None:
        return from_tensor(tensor.new_zeros(frame.lengths(target.shape)), target)
    if frame.races is not None:
        frame.races.update(op, tensor, access)
    value = frame.tensor(op.value).to(tensor.dtype).expand(access.lengths)
    if isinstance(access, SliceAccess) or not access.has_duplicates(tensor):
        previous = access.read(tensor).clone()
        access.write(tensor, _COMBINE[op.kind](previous, value))
    elif (
        op.kind == "add" and op.result not in frame.prepared.used and tensor.dtype in _ACCUMULATING
    ):
        previous = tensor.new_zeros(access.lengths)
        access.write(tensor, value, accumulate=True)
    else:
        previous = _one_by_one(op, tensor, access, value)
    return from_tensor(previous, target)


def _one_by_one(
    op: Atomic, tensor: torch.Tensor, access: GatherAccess, value: torch.Tensor
) -> torch.Tensor:
    combine = _COMBINE[op.kind]
    values = value.reshape(-1) if access.mask is None else value[access.mask]
    indices = zip(*(lane.tolist() for lane in access.lanes()))
    before: list[torch.Tensor] = []
    for index, lane in zip(indices, values):
        element = tensor[index]
        before.append(element.clone())
        element.copy_(combine(element, lane))
    if access.mask is None:
        return torch.stack(before).reshape(access.lengths)
    previous = tensor.new_zeros(access.lengths)
    previous[access.mask] = torch.stack(before)
    return previous
