"""Evaluates ops with effects: accesses to memory, prints, assertions and stops in a debugger.

Every index of a valid lane is checked against its tensor. Accesses through tile indices become one
strided view; the others gather and scatter. Each lane of an atomic takes effect once, in row-major
order. Where lanes have base addresses of their own, those of each address access host memory there.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.interpreter.access import Access, GatherAccess, SliceAccess, find_row_selection
from tilesmith.interpreter.frame import Evaluators, Frame, Tile, from_tensor
from tilesmith.interpreter.scalar_functions import SCALAR_FUNCTIONS_TORCH
from tilesmith.ir.ops.control_flow import GridBarrier
from tilesmith.ir.ops.foreign import Assert, Breakpoint, InlineAsm, InlineTriton, Print
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.types import Shape, TensorType

AccessOp = Load | Store | Atomic


def _load(op: Load, frame: Frame) -> Tile:
    """Read; a value must not change with later stores, so tensors that are written get copied."""
    target, tensor = op.result.tile, frame.values[op.tensor]
    if op.bases is not None:
        return from_tensor(_load_elsewhere(op, frame), target)
    access = resolve_access(op, target.shape, frame)
    if access is None:
        return from_tensor(tensor.new_zeros(frame.lengths(target.shape)), target)
    if frame.races is not None:
        frame.races.read(op, tensor, access)
    found = access.read(tensor)
    if op.tensor in frame.written and isinstance(access, SliceAccess) and access.mask is None:
        found = found.clone()
    return from_tensor(found, target)


def _store(op: Store, frame: Frame) -> None:
    tensor = frame.values[op.tensor]
    if op.bases is not None:
        _store_elsewhere(op, frame)
        return
    access = resolve_access(op, op.value.tile.shape, frame)
    if access is None:
        return
    if frame.races is not None:
        # Lanes of one store have no order: the last one to write an element may be any.
        index = access.find_duplicate(tensor) if isinstance(access, GatherAccess) else None
        if index is not None:
            place = str(index).replace(",)", ")")
            raise errors.DuplicateStoreIndicesError(tensor=op.tensor.name, index=place, loc=op.loc)
        frame.races.write(op, tensor, access)
    if frame.sampling is not None:
        frame.sampling.note_write(tensor, access)
    access.write(tensor, frame.tensor(op.value))


def _barrier(op: ProgramBarrier | GridBarrier, frame: Frame) -> None:
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
    for bound in map(int, torch.aminmax(index)):
        if not 0 <= bound < frame.values[op.tensor].shape[dimension]:
            raise _out_of_bounds(op, frame, dimension, bound)


def _out_of_bounds(
    op: AccessOp, frame: Frame, dimension: int, index: int
) -> errors.OutOfBoundsAccess:
    size = frame.values[op.tensor].shape[dimension]
    return errors.OutOfBoundsAccess(
        tensor=op.tensor.name, dim=dimension, index=index, size=size, loc=op.loc
    )


_UPDATES: dict[str, Callable[..., torch.Tensor]] = {
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


def _atomic(op: Atomic, frame: Frame) -> Tile:
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
        access.write(tensor, _UPDATES[op.kind](previous, *operands))
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
    combine = _UPDATES[op.kind]
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


def _load_elsewhere(op: Load, frame: Frame) -> torch.Tensor:
    shape = op.result.tile.shape
    found = frame.values[op.tensor].new_zeros(frame.lengths(shape))
    for tensor, access in _accesses_elsewhere(op, shape, frame):
        assert access.mask is not None
        found = torch.where(access.mask, access.read(tensor), found)
    return found


def _store_elsewhere(op: Store, frame: Frame) -> None:
    for tensor, access in _accesses_elsewhere(op, op.value.tile.shape, frame):
        access.write(tensor, frame.tensor(op.value))


def _accesses_elsewhere(
    op: Load | Store, shape: Shape, frame: Frame
) -> Iterator[tuple[torch.Tensor, GatherAccess]]:
    """Each tensor found at one of the addresses, with the lanes that go there."""
    example = frame.values[op.tensor]
    if example.device.type != "cpu":
        raise errors.BackendUnsupported(
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
            _check_bounds(op, dimension, index, frame)
        yield _tensor_at(address, example), GatherAccess(tuple(indices), lengths, mask)


def _tensor_at(address: int, example: torch.Tensor) -> torch.Tensor:
    """The tensor at an address that looks like the example."""
    last = sum((n - 1) * stride for n, stride in zip(example.shape, example.stride()))
    count = last + 1
    memory = (ctypes.c_char * (count * example.itemsize)).from_address(address % 2**64)
    flat = torch.frombuffer(memory, dtype=example.dtype, count=count)
    return flat.as_strided(example.shape, example.stride())


_FIX = (
    'move the arguments to a GPU (backend="triton"), or write it with torch operations,\n'
    "which run everywhere"
)


def _print(op: Print, frame: Frame) -> None:
    """One line (or block of lines) with where the program begins, and the valid lanes."""
    tensors = map(frame.tensor, op.values)
    shown = ", ".join(str(x if x.dim() else x.item()) for x in tensors)
    colon = ": " if op.prefix and shown else ""
    sys.stdout.write(f"at {_position(frame)} {op.prefix}{colon}{shown}\n")


def _position(frame: Frame) -> str:
    return f"({', '.join(map(str, frame.program))})"


def _breakpoint(op: Breakpoint, frame: Frame) -> None:
    """Call the debugger from a frame at the user's line, with the values as its variables."""
    kinds = ((value, isinstance(value.type, TensorType)) for value in op.values)
    values = [frame.values[v] if is_tensor else frame.tensor(v) for v, is_tensor in kinds]
    _stop_at(op.loc, op.names)(*values)


def _assert(op: Assert, frame: Frame) -> None:
    """Raise at the user's line where the condition does not hold."""
    if not frame.tensor(op.condition).item():
        raise errors.DeviceAssertionFailed(
            condition=op.message or op.loc.text or "the condition is false",
            program=_position(frame),
            loc=op.loc,
        )


def _stop_at(loc: SourceLocation, names: tuple[str, ...]) -> FunctionType:
    """A function with these parameters that stands at the place and calls the debugger."""
    scope: dict[str, Any] = {"__sys": sys}
    blank = "\n" * max(loc.line - 1, 0)
    text = f"{blank}def __stop({', '.join(names)}): __sys.breakpointhook()"
    exec(compile(text, loc.file, "exec", dont_inherit=True), scope)
    function = scope["__stop"]
    function.__code__ = function.__code__.replace(co_name=loc.function or "kernel")
    return function


def refusal(op: InlineTriton | InlineAsm, backend: str) -> errors.BaseError:
    """The error of a backend that has no Triton."""
    function = "hl.inline_asm_elementwise"
    if isinstance(op, InlineTriton):
        function = "hl.triton_kernel" if op.definitions else "hl.inline_triton"
    return errors.BackendUnsupported(operation=function, backend=backend, fix=_FIX, loc=op.loc)


def _inline(op: InlineTriton | InlineAsm, frame: Frame) -> None:
    raise refusal(op, "reference")


EVALUATORS: Evaluators = {
    Load: _load,
    Store: _store,
    Atomic: _atomic,
    ProgramBarrier: _barrier,
    GridBarrier: _barrier,
    Print: _print,
    Breakpoint: _breakpoint,
    Assert: _assert,
    InlineTriton: _inline,
    InlineAsm: _inline,
}
