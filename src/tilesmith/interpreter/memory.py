"""Evaluates loads and stores, with every index of a valid lane checked against the tensor.

Accesses through tile indices become one strided view; the others gather and scatter.
"""

from __future__ import annotations

import torch

from tilesmith.diagnostics.errors import DuplicateStoreIndicesError, OutOfBoundsAccess
from tilesmith.interpreter.access import Access, GatherAccess, SliceAccess, find_row_selection
from tilesmith.interpreter.frame import Frame, Tile, from_tensor
from tilesmith.interpreter.stacked_access import load_elsewhere, store_elsewhere
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.types import Shape

AccessOp = Load | Store | Atomic


def evaluate_load(op: Load, frame: Frame) -> Tile:
    """Read; a value must not change with later stores, so tensors that are written get copied."""
    target, tensor = op.result.tile, frame.values[op.tensor]
    if op.bases is not None:
        return from_tensor(load_elsewhere(op, frame), target)
    access = resolve_access(op, target.shape, frame)
    if access is None:
        return from_tensor(tensor.new_zeros(frame.lengths(target.shape)), target)
    if frame.races is not None:
        frame.races.read(op, tensor, access)
    found = access.read(tensor)
    if op.tensor in frame.written and isinstance(access, SliceAccess) and access.mask is None:
        found = found.clone()
    return from_tensor(found, target)


def evaluate_store(op: Store, frame: Frame) -> None:
    """Write the lanes that are not masked off."""
    tensor = frame.values[op.tensor]
    if op.bases is not None:
        store_elsewhere(op, frame)
        return
    access = resolve_access(op, op.value.tile.shape, frame)
    if access is None:
        return
    if frame.races is not None:
        _check_duplicates(op, tensor, access)
        frame.races.write(op, tensor, access)
    if frame.sampling is not None:
        frame.sampling.note_write(tensor, access)
    access.write(tensor, frame.tensor(op.value))


def _check_duplicates(op: Store, tensor: torch.Tensor, access: Access) -> None:
    """Lanes of one store have no order: the last one to write an element may be any."""
    index = access.find_duplicate(tensor) if isinstance(access, GatherAccess) else None
    if index is not None:
        raise DuplicateStoreIndicesError(
            tensor=op.tensor.name, index=str(index).replace(",)", ")"), loc=op.loc
        )


def evaluate_program_barrier(op: ProgramBarrier, frame: Frame) -> None:
    """Ops run in order, so only the race detector cares: between grids it orders programs."""
    if frame.races is not None:
        frame.races.barrier()


def resolve_access(op: AccessOp, shape: Shape, frame: Frame) -> Access | None:
    """Which elements the op touches; None when it touches none."""
    lengths = frame.lengths(shape)
    mask = None if op.mask is None else frame.values[op.mask]
    if mask is False or 0 in lengths:
        return None
    mask = mask.expand(lengths) if isinstance(mask, torch.Tensor) else None
    tiles = [frame.values[index] for index in op.indices]
    if not any(isinstance(tile, torch.Tensor) for tile in tiles):
        access = SliceAccess(tiles, lengths, mask)
        # Slices with repeated elements cannot be written; the race detector writes for loads too.
        may_repeat = isinstance(op, Load) and frame.races is None
        if access.is_ascending and (may_repeat or not access.has_duplicates):
            outside = access.find_outside(frame.values[op.tensor].shape)
            if outside is None:
                return access
            if mask is None:
                raise _out_of_bounds(op, frame, *outside)
    return _resolve_gather(op, lengths, mask, frame)


def _resolve_gather(
    op: AccessOp, lengths: tuple[int, ...], mask: torch.Tensor | None, frame: Frame
) -> Access | None:
    if mask is not None and not mask.any():
        return None
    indices: list[torch.Tensor] = []
    for dimension, index in enumerate(op.indices):
        tensor = frame.tensor(index).to(torch.int64)
        if mask is not None:
            tensor = torch.where(mask, tensor, 0)
        if frame.checked:
            _check_bounds(op, dimension, tensor, frame)
        indices.append(tensor)
    tiles = [frame.values[index] for index in op.indices]
    shape = frame.values[op.tensor].shape
    rows = find_row_selection(tiles, lengths, shape) if mask is None else None
    return GatherAccess(tuple(indices), lengths, mask, rows)


def _check_bounds(op: AccessOp, dimension: int, index: torch.Tensor, frame: Frame) -> None:
    lowest, highest = (int(bound) for bound in torch.aminmax(index))
    if lowest < 0:
        raise _out_of_bounds(op, frame, dimension, lowest)
    if highest >= frame.values[op.tensor].shape[dimension]:
        raise _out_of_bounds(op, frame, dimension, highest)


def _out_of_bounds(op: AccessOp, frame: Frame, dimension: int, index: int) -> OutOfBoundsAccess:
    size = frame.values[op.tensor].shape[dimension]
    return OutOfBoundsAccess(
        tensor=op.tensor.name, dim=dimension, index=index, size=size, loc=op.loc
    )
