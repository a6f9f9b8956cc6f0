"""``hl.tile``, ``hl.grid``, ``hl.jagged_tile``: what the iterator of a device loop describes.

Calling ``hl.tile(...)`` in device code gives a ``LoopRange``; the rewritten ``for``
(``device_loops.py``) turns it into a loop op. Bounds are scalars or sequences of scalars, one per
axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import I32, I64
from tilesmith.frontend.tracing.emission import as_tile, cast, full, integer, reshape
from tilesmith.frontend.tracing.known_sizes import known_number
from tilesmith.frontend.tracing.tensors import TensorRef
from tilesmith.frontend.tracing.tile import Tile
from tilesmith.frontend.tracing.tracer import (
    WIDE_LIMIT,
    Tracer,
    current_tracer,
    find_host_session,
    find_tracer,
)
from tilesmith.frontend.tracing.values import Scalar, TileValue, dispatch
from tilesmith.ir.ops.control_flow import GridBarrier
from tilesmith.ir.types import Dim, Value


@dataclass(frozen=True)
class Axis:
    """One axis of a loop: its range, and how it steps."""

    begin: Any
    end: Any
    block_size: Any = None
    """None: tuned; otherwise an int, a registered block size or a scalar with a block's
    dimension."""
    step: Any = None
    """Set for index axes (``hl.grid``), which have no block; below 0 where they run down."""
    lengths: TileValue | None = None
    """Set for ``hl.jagged_tile``: how far the axis reaches in each lane of enclosing tiles."""

    @property
    def is_down(self) -> bool:
        """Whether indices get smaller from turn to turn."""
        return isinstance(self.step, int) and self.step < 0

    def turned(self) -> Axis:
        """The same indices from the last to the first."""
        begin, end = load_scalar(self.begin), load_scalar(self.end)
        if not isinstance(self.step, int):
            raise errors.IncorrectTileUsage(
                problem="the step of a reversed loop is known only at run time",
                fix="use a step that is known, or compute the index from a loop without one",
            )
        if isinstance(begin, int) and isinstance(end, int):
            indices = range(begin, end, self.step)[::-1]
            return Axis(indices.start, indices.stop, step=indices.step)
        low, high = (end, begin) if self.is_down else (begin, end)
        length = integer("add", integer("sub", high, low), abs(self.step) - 1)
        count = integer("floordiv", length, abs(self.step))
        last = integer("add", begin, integer("mul", integer("sub", count, 1), self.step))
        return Axis(last, integer("sub", begin, 1 if self.step > 0 else -1), step=-self.step)


@dataclass(frozen=True)
class LoopRange:
    """The iterator of a device loop."""

    axes: tuple[Axis, ...]
    is_tuple: bool
    """Whether the loop variable is a tuple (bounds were given as a sequence)."""
    function: str
    is_builtin_range: bool = False
    is_reversed: bool = False
    """Whether tiles come from the last to the first; index axes are turned round instead."""
    stopped: str = ""
    """The flag that a ``break`` in the loop sets."""
    user_name = "a loop"

    @property
    def can_end_early(self) -> bool:
        """Whether a ``break`` ends it; in other loops the flag makes the other turns empty."""
        return bool(self.stopped) and len(self.axes) == 1 and self.axes[0].step is not None

    def check(self, num_names: int = 1) -> None:
        """Raise where one axis cannot be unpacked, or ends before it begins."""
        if num_names > 1 and not self.is_tuple:
            raise errors.FailedToUnpackTile(count=num_names)
        for axis in self.axes:
            low, high = (axis.end, axis.begin) if axis.is_down else (axis.begin, axis.end)
            if isinstance(low, int) and isinstance(high, int) and low > high:
                raise errors.InvalidTileRange(begin=axis.begin, end=axis.end)

    def __reversed__(self) -> LoopRange:
        self.check()
        if any(axis.step is None for axis in self.axes):
            return replace(self, is_reversed=not self.is_reversed)
        return replace(self, axes=tuple(axis.turned() for axis in self.axes))

    def __iter__(self) -> Any:
        # A comprehension, `zip`, `sum`, ...: plain Python, which takes a range that is known.
        (axis, *_) = self.axes
        bounds = (axis.begin, axis.end, axis.step)
        if self.is_builtin_range and all(isinstance(bound, int) for bound in bounds):
            return iter(range(*bounds))
        raise errors.LoopFunctionNotInFor(
            function="range" if self.is_builtin_range else f"hl.{self.function}"
        )


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _check_bound(value: Any, function: str) -> None:
    if isinstance(value, Tile):
        raise errors.TileOfTile()
    is_scalar_tensor = isinstance(value, TensorRef) and value.ndim == 0
    is_scalar = isinstance(value, TileValue) and value.tile.rank == 0
    if not (isinstance(value, int) or is_scalar or is_scalar_tensor):
        raise errors.IncorrectTileUsage(
            problem=f"a bound of hl.{function} is {kind_of(value)}",
            fix="bounds are integers, sizes, scalar tensors, or lists of them",
        )


def _ranges(
    begin: Any, end: Any, extra: Any, function: str
) -> tuple[list[tuple[Any, Any, Any]], bool]:
    if end is None:
        begin, end = ([0] * len(begin) if _is_sequence(begin) else 0), begin
    is_tuple = _is_sequence(end)
    if _is_sequence(begin) != is_tuple:
        raise errors.IncorrectTileUsage(
            problem=f"hl.{function} bounds mix a scalar and a sequence",
            fix="give both bounds as scalars or both as sequences of one length",
        )
    begins, ends = (list(begin), list(end)) if is_tuple else ([begin], [end])
    if not ends:
        raise errors.IncorrectTileUsage(
            problem=f"hl.{function} got no bounds: the shape of a tensor without dimensions is []",
            fix="loop over one step, `for t in hl.tile(1)`, and index the tensor with `x[()]`",
        )
    extras = list(extra) if _is_sequence(extra) else [extra] * len(ends)
    if not len(begins) == len(ends) == len(extras):
        raise errors.IncorrectTileUsage(
            problem=f"hl.{function} got {len(begins)} begins, {len(ends)} ends and {len(extras)}",
            fix="give as many of each, or one block size or step for all",
        )
    for bound in (*begins, *ends):
        _check_bound(bound, function)
    return list(zip(begins, ends, extras)), is_tuple


def tile(begin_or_end: Any, end_or_none: Any = None, /, block_size: Any = None) -> LoopRange:
    """Tiles of an index space, only in a ``for``: outermost each is a program, inside a turn.

    Example:
        ``for t, u in hl.tile([m, n], block_size=[None, 64]): ...``
    """
    current_tracer("hl.tile")
    ranges, is_tuple = _ranges(begin_or_end, end_or_none, block_size, "tile")
    return LoopRange(tuple(Axis(a, b, c) for a, b, c in ranges), is_tuple, "tile")


def grid(begin_or_end: Any, end_or_none: Any = None, /, step: Any = None) -> LoopRange:
    """Iterate over plain indices; the loop variable is a scalar.

    Example:
        ``for i in hl.grid(n): out[i, :] = x[i, :]``
    """
    current_tracer("hl.grid")
    ranges, is_tuple = _ranges(begin_or_end, end_or_none, step, "grid")
    for _, _, stride in ranges:
        if isinstance(stride, int) and stride == 0:
            raise errors.IncorrectTileUsage(
                problem="the step of a loop is 0", fix="use a step above 0, or below 0 to run down"
            )
    axes = tuple(Axis(a, b, step=1 if c is None else c) for a, b, c in ranges)
    return LoopRange(axes, is_tuple, "grid")


def static_range(
    begin_or_end: int, end_or_none: int | None = None, /, step: int = 1
) -> Sequence[int]:
    """A loop that is unrolled whole; arguments and index are compile-time integers."""
    current_tracer("hl.static_range")
    begin, end = (0, begin_or_end) if end_or_none is None else (begin_or_end, end_or_none)
    for bound in (begin, end, step):
        if isinstance(bound, bool) or not isinstance(bound, int):
            raise errors.StaticRangeBound(found=kind_of(bound))
    return range(begin, end, step)


def jagged_tile(parent: Any) -> LoopRange:
    """Tiles over ``[0, parent.amax())``; lanes at or past their own length do not count.

    Example:
        ``for u in hl.jagged_tile(lengths[t]): total = total + x[t, u].sum(1)``
    """
    tracer = current_tracer("hl.jagged_tile")
    if problem := _problem_with_lengths(tracer, parent):
        raise errors.InvalidJaggedTileUsage(problem=problem)
    lengths = cast(parent, I64 if parent.tile.dtype == I64 else I32)
    longest = dispatch("amax", (lengths,), {})
    shape = tuple(dim for dim in lengths.tile.shape if not dim.is_one)
    # Axes of one lane distinguish nothing; without any other this is a plain tile loop.
    bound = reshape(lengths, shape) if shape else None
    return LoopRange((Axis(0, longest, lengths=bound),), False, "jagged_tile")


def _problem_with_lengths(tracer: Tracer, parent: Any) -> str:
    if not tracer.regions:
        return "it cannot be the outermost loop"
    if isinstance(parent, TensorRef):
        return f"`{parent.source}` is a host tensor, not lengths loaded by a tile"
    if not isinstance(parent, TileValue) or isinstance(parent, Scalar):
        return f"the lengths are {kind_of(parent)}"
    if not parent.tile.rank:
        return "the lengths are one scalar; hl.tile takes such a bound"
    if not parent.tile.dtype.is_integer:
        return f"the lengths have dtype {parent.dtype}, not an integer type"
    known = tracer.bound_blocks()
    for dim in parent.tile.shape:
        if not dim.is_one and dim.symbol not in known:
            return f"dimension {dim} of the lengths is no tile of an enclosing loop"
    return ""


def barrier() -> None:
    """Between two top-level loops: all programs before it end, and what they wrote is seen after.

    Example:
        ``hl.barrier()``
    """
    tracer = find_tracer()
    if tracer is None and find_host_session() is None:
        raise errors.NotInsideKernel(function="hl.barrier")
    if tracer is None or tracer.regions:
        raise errors.BarrierOnlyAllowedAtTopLevel()
    tracer.builder.effect(GridBarrier)


@dataclass(frozen=True)
class BoundAxis:
    """An axis ready for a loop op.

    Values for its bounds and the block it steps by ("" for plain indices).
    """

    begin: Value
    end: Value
    block: str
    step: Value | None
    is_unit_tile: bool = False
    """A tile whose block size is fixed to 1: an index axis whose loop variable is a Tile."""
    lengths: TileValue | None = None
    strided: BoundAxis | None = None
    """The axis as the user wrote it, where this one counts its turns."""

    def index(self, position: Value) -> Value:
        """The index that a position of the loop op stands for."""
        if self.strided is None or self.strided.step is None:
            return position
        offset = integer("mul", Scalar(position), Scalar(self.strided.step))
        return integer("add", Scalar(self.strided.begin), offset).value


def bind_axis(axis: Axis, name: str) -> BoundAxis:
    """Emit the bounds of an axis and declare its block."""
    dtype = current_tracer("a loop").index_dtype
    bounds = [load_scalar(axis.begin), load_scalar(axis.end)]
    for bound in bounds:
        is_wide_constant = isinstance(bound, int) and abs(bound) > WIDE_LIMIT
        # Positions of an outer 64-bit loop stay 64-bit; loaded int64 values are offsets that fit.
        if is_wide_constant or (isinstance(bound, Scalar) and bound.tile.dtype == I64):
            dtype = I64
    begin, end = (as_tile(bound, dtype).value for bound in bounds)
    if axis.step is not None:
        return BoundAxis(begin, end, "", as_tile(load_scalar(axis.step), dtype).value)
    block = resolve_block(axis, name)
    if block is None:
        return BoundAxis(begin, end, "", full(1, dtype).value, is_unit_tile=True)
    return BoundAxis(begin, end, block, None, lengths=axis.lengths)


def load_scalar(bound: Any) -> Any:
    """A bound that is a host tensor of one element, as the scalar in it."""
    return bound[()] if isinstance(bound, TensorRef) else bound


def resolve_block(axis: Axis, name: str) -> str | None:
    """The block symbol of an axis (None for a fixed size of 1)."""
    tracer = current_tracer("hl.tile")
    size = axis.block_size
    dim = size.as_dim if isinstance(size, Scalar) else None
    if isinstance(size, Scalar) and (dim is None or tracer.find_block(dim.symbol) is None):
        size = known_number(size, "the block size", specializes=True)
    if isinstance(size, Scalar) and isinstance(size.as_dim, Dim) and size.as_dim.symbol:
        block = size.as_dim.symbol
        if block in tracer.bound_blocks():
            raise errors.NestedDeviceLoopsConflict(block=block)
        return block
    if isinstance(size, int) and not isinstance(size, bool):
        if size < 1 or size & (size - 1):
            raise errors.InvalidBlockSize(found=size)
        if size == 1:
            return None
        return tracer.new_block(name, fixed=size, extent=_extent(axis)).name
    if size is not None:
        raise errors.IncorrectTileUsage(
            problem=f"block_size is {kind_of(size)}",
            fix="use a power of two, a value of hl.register_block_size, or None to have it tuned",
        )
    return tracer.new_block(name, slot=tracer.next_slot(), extent=_extent(axis)).name


def _extent(axis: Axis) -> int | None:
    """How many elements the axis ranges over, when known."""
    is_known = isinstance(axis.begin, int) and isinstance(axis.end, int)
    return axis.end - axis.begin if is_known else None
