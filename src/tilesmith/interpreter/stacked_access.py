"""Loads and stores at computed addresses: each lane starts from a base address of its own.

Only tensors in host memory can be reached this way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import torch

from tilesmith.diagnostics.errors import BackendUnsupported, OutOfBoundsAccess
from tilesmith.interpreter.access import GatherAccess
from tilesmith.interpreter.frame import Frame
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.types import Shape


def load_elsewhere(op: Load, frame: Frame) -> torch.Tensor:
    """The accessed elements, masked-off ones as 0."""
    shape = op.result.tile.shape
    found = frame.values[op.tensor].new_zeros(frame.lengths(shape))
    for tensor, access in _accesses(op, shape, frame):
        assert access.mask is not None
        found = torch.where(access.mask, access.read(tensor), found)
    return found


def store_elsewhere(op: Store, frame: Frame) -> None:
    """Write the lanes that are not masked off."""
    for tensor, access in _accesses(op, op.value.tile.shape, frame):
        access.write(tensor, frame.tensor(op.value))


def _accesses(
    op: Load | Store, shape: Shape, frame: Frame
) -> Iterator[tuple[torch.Tensor, GatherAccess]]:
    """Each tensor found at one of the addresses, with the lanes that go there."""
    example = frame.values[op.tensor]
    if example.device.type != "cpu":
        raise BackendUnsupported(
            operation="hl.stacktensor_like on device tensors", backend="reference", loc=op.loc
        )
    assert op.bases is not None
    lengths = frame.lengths(shape)
    valid = torch.ones((), dtype=torch.bool)
    if op.mask is not None:
        valid = frame.tensor(op.mask)
    bases = frame.tensor(op.bases).view(torch.int64).expand(lengths)
    for address in torch.unique(bases[valid.expand(lengths)]).tolist():
        mask = (bases == address) & valid
        tiles = (frame.tensor(index).to(torch.int64) for index in op.indices)
        indices = [torch.where(mask, tile, 0) for tile in tiles]
        for dimension, index in enumerate(indices):
            _check_bounds(op, dimension, index, example.shape[dimension])
        yield _tensor_at(address, example), GatherAccess(tuple(indices), lengths, mask)


def _check_bounds(op: Load | Store, dimension: int, index: torch.Tensor, size: int) -> None:
    for bound in map(int, torch.aminmax(index)):
        if not 0 <= bound < size:
            raise OutOfBoundsAccess(
                tensor=op.tensor.name, dim=dimension, index=bound, size=size, loc=op.loc
            )


def _tensor_at(address: int, example: torch.Tensor) -> torch.Tensor:
    """The tensor at an address that looks like the example."""
    last = sum((n - 1) * stride for n, stride in zip(example.shape, example.stride()))
    count = last + 1
    memory = (ctypes.c_char * (count * example.itemsize)).from_address(address % 2**64)
    flat = torch.frombuffer(memory, dtype=example.dtype, count=count)
    return flat.as_strided(example.shape, example.stride())
