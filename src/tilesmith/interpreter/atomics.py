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
    "cas": lambda old, value, expected: torch.where(old == expected, value, old),
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
    if frame.sampling is not None:
        frame.sampling.note_write(tensor, access)
    operands = [
        frame.tensor(operand).to(tensor.dtype).expand(access.lengths)
        for operand in (op.value, op.expected)
        if operand is not None
    ]
    if isinstance(access, SliceAccess) or not access.has_duplicates(tensor):
        previous = access.read(tensor).clone()
        access.write(tensor, _COMBINE[op.kind](previous, *operands))
    elif (
        op.kind == "add" and op.result not in frame.prepared.used and tensor.dtype in _ACCUMULATING
    ):
        previous = tensor.new_zeros(access.lengths)
        access.write(tensor, operands[0], accumulate=True)
    else:
        previous = _one_by_one(op, tensor, access, operands)
    return from_tensor(previous, target)


def _one_by_one(
    op: Atomic, tensor: torch.Tensor, access: GatherAccess, operands: list[torch.Tensor]
) -> torch.Tensor:
    combine = _COMBINE[op.kind]
    mask = access.mask
    lanes = [x.reshape(-1) if mask is None else x[mask] for x in operands]
    indices = zip(*(lane.tolist() for lane in access.lanes()))
    before: list[torch.Tensor] = []
    for index, *values in zip(indices, *lanes):
        element = tensor[index]
        before.append(element.clone())
        element.copy_(combine(element, *values))
    if mask is None:
        return torch.stack(before).reshape(access.lengths)
    previous = tensor.new_zeros(access.lengths)
    previous[mask] = torch.stack(before)
    return previous
