"""How the reference is interpreted: block sizes, number of programs, tensors of its own.

Interpreting costs time per op rather than per element, and memory per element, since the results
of all ops of a program stay alive: tiles are large, so that few programs cover much of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod

import torch

from tilesmith.analysis.effects import alias_group, groups_written_by
from tilesmith.interpreter.run import Argument
from tilesmith.ir.function import Block, Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier, Loop, While
from tilesmith.ir.ops.indexing import BlockSize
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Shape, TensorType, TileType

GROWN_BYTES = 16 << 20
"""Tiles grow as long as all values of a program take no more."""
HOST_WORK_BYTES, DEVICE_WORK_BYTES = 1 << 29, 1 << 33
"""Programs are interpreted as long as the values of all take no more: a second's work or so."""
FEWEST_PROGRAMS, MOST_PROGRAMS = 8, 64
MAX_BYTES = 2 << 30
"""Tiles shrink until they take no more."""
_WIDEST = 8
"""Bytes of the widest element."""


def needs_all_programs(function: Function) -> bool:
    """Whether results of one program depend on others, so that a sample would be wrong."""
    dependent = (Atomic, GridBarrier, GroupBarrier, While)
    return any(isinstance(op, dependent) for op in walk_function(function))


def runtime_sizes(function: Function, arguments: Mapping[str, Argument]) -> dict[str, int]:
    """The sizes that are known at a call only."""
    return {size.name: int(arguments[size.name]) for size in function.sizes}


def reference_sizes(
    function: Function, block_sizes: Sequence[int], *, may_grow: bool = True
) -> dict[str, int]:
    """A size for every tuned block, starting from those of a Config.

    Only blocks of grids grow: how a loop splits a sum is part of what its roundings do.
    """
    sizes: dict[str, int] = {}
    for block in function.blocks:
        if block.fixed is None:
            is_given = block.slot is not None and block.slot < len(block_sizes)
            sizes[block.name] = block_sizes[block.slot or 0] if is_given else max(block.low, 16)
    if not may_grow:
        return sizes
    movable = _movable_blocks(function)
    while program_bytes(function, sizes) > MAX_BYTES and _step(sizes, movable, is_growth=False):
        pass
    # Where programs add to elements of a narrow type, their number decides the error.
    atomics = [op for op in walk_function(function) if isinstance(op, Atomic)]
    if not any(op.tensor.tensor.dtype.is_low_precision_float for op in atomics):
        grown = dict(sizes)
        while _step(grown, movable, is_growth=True):
            if program_bytes(function, grown) > GROWN_BYTES:
                break
            sizes.update(grown)
    return sizes


def choose_num_programs(
    function: Function, sizes: Mapping[str, int], *, is_on_host: bool = True
) -> int:
    """How many programs of a grid to interpret."""
    work = HOST_WORK_BYTES if is_on_host else DEVICE_WORK_BYTES
    affordable = work // max(1, _program_work(function, sizes))
    return max(FEWEST_PROGRAMS, min(MOST_PROGRAMS, affordable))


def program_bytes(function: Function, sizes: Mapping[str, int]) -> int:
    """Memory for the values of one program, every element as wide as the widest."""
    lengths = _lengths(function, sizes)
    ops = walk_function(function)
    return _WIDEST * sum(_elements(function, shape, lengths) for shape in _stored_shapes(ops))


def _program_work(function: Function, sizes: Mapping[str, int]) -> int:
    """Memory for all values that one program makes, in all iterations of its loops."""
    lengths = _lengths(function, sizes)

    def work(region: Region) -> int:
        own = sum(_elements(function, shape, lengths) for shape in _stored_shapes(region.ops))
        return own + sum(
            _num_iterations(function, op, lengths) * work(inner)
            for op in region.ops
            for inner in op.regions()
        )

    return _WIDEST * work(function.body)


def _num_iterations(function: Function, op: Operation, lengths: Mapping[str, int]) -> int:
    if not isinstance(op, Loop):
        return 1
    blocks = [function.block(name) for name in op.blocks if name]
    return prod(-(-(b.extent or lengths[b.name]) // max(1, lengths[b.name])) for b in blocks)


def _lengths(function: Function, sizes: Mapping[str, int]) -> dict[str, int]:
    return {
        block.name: min(sizes.get(block.name, block.fixed or 1), block.extent or (1 << 62))
        for block in function.blocks
    }


def _movable_blocks(function: Function) -> dict[str, Block]:
    """Tuned blocks of grids whose size no op looks at, and whose axis has a known length."""
    ops = list(walk_function(function))
    gridded = {name for op in ops if isinstance(op, Grid) for name in op.blocks}
    observed = {op.block for op in ops if isinstance(op, BlockSize)}
    return {
        block.name: block
        for block in function.blocks
        if block.fixed is None and block.name in gridded - observed and block.extent is not None
    }


def _step(sizes: dict[str, int], movable: Mapping[str, Block], *, is_growth: bool) -> bool:
    """Double the smallest block that can be, or halve the largest; False if none can."""
    if is_growth:
        free = [name for name, block in movable.items() if sizes[name] < _largest(block)]
    else:
        free = [name for name, block in movable.items() if sizes[name] > max(1, block.low)]
    if not free:
        return False
    chosen = (min if is_growth else max)(free, key=sizes.__getitem__)
    sizes[chosen] = sizes[chosen] * 2 if is_growth else sizes[chosen] // 2
    return True


def _largest(block: Block) -> int:
    limit = block.extent or 1
    return limit if block.high is None else min(limit, block.high // 2 + 1)


def _stored_shapes(ops: Iterable[Operation]) -> list[Shape]:
    shapes: list[Shape] = []
    for op in ops:
        # Views, or known without being stored; a reshape may copy.
        is_free = op.form.is_lane_wise and (Trait.VIEW in op.traits or not op.form.roles)
        types = [] if is_free else [value.type for value in op.results]
        shapes += [found.shape for found in types if isinstance(found, TileType)]
    return shapes


def _elements(function: Function, shape: Shape, lengths: Mapping[str, int]) -> int:
    factors = [factor for dim in shape for factor in dim.factors]
    known = {f: lengths[f] for f in factors if isinstance(f, str) and f in lengths}
    return prod(known[f] if f in known else function.hint(f) for f in factors)


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor's storage, as a flat tensor over the same memory."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage())  # type: ignore[arg-type]


class ScratchTensors:
    """Copies storages as they are met, once each."""

    def __init__(self) -> None:
        self._bytes: dict[int, torch.Tensor] = {}
        self._wide: dict[int, torch.Tensor] = {}

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same elements in memory of their own."""
        flat = _once(self._bytes, tensor, lambda: _padded_copy(bytes_of(tensor)))
        return like_view(flat.view(tensor.dtype), tensor)

    def widen(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same elements as fp64; all tensors of one storage must have one type."""

        def widened() -> torch.Tensor:
            content = bytes_of(tensor)
            length = content.numel() // tensor.itemsize * tensor.itemsize
            return content[:length].view(tensor.dtype).to(torch.float64, copy=True)

        return like_view(_once(self._wide, tensor, widened), tensor)


def copy_written(
    function: Function, arguments: Mapping[str, Argument], *, is_wide: bool
) -> dict[str, torch.Tensor]:
    """The tensors in memory that a function writes, as copies; floats as fp64 if wide."""
    groups = groups_written_by(function)
    scratch = ScratchTensors()
    copies: dict[str, torch.Tensor] = {}
    for value in (parameter.value for parameter in function.parameters):
        if not isinstance(value.type, TensorType) or alias_group(value) not in groups:
            continue
        tensor = arguments[value.name]
        assert isinstance(tensor, torch.Tensor)
        must_widen = is_wide and tensor.is_floating_point()
        copies[value.name] = scratch.widen(tensor) if must_widen else scratch.copy(tensor)
    return copies


def _once(
    known: dict[int, torch.Tensor], tensor: torch.Tensor, make: Callable[[], torch.Tensor]
) -> torch.Tensor:
    key = tensor.untyped_storage().data_ptr()
    # All tensors without memory have one address.
    if not key or key not in known:
        known[key] = make()
    return known[key]


def _padded_copy(content: torch.Tensor) -> torch.Tensor:
    """A copy that any type can be seen in: its length is a multiple of the widest."""
    length = -(-content.numel() // _WIDEST) * _WIDEST
    copy = torch.zeros(length, dtype=torch.uint8, device=content.device)
    copy[: content.numel()] = content
    return copy


def like_view(whole: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """The elements of ``whole``'s storage that ``view`` shows of another storage like it."""
    return whole.as_strided(view.shape, view.stride(), view.storage_offset())
