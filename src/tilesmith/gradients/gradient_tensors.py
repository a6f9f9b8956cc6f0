"""The tensors of a backward function: cotangents that it loads, and gradients that it fills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, count

from tilesmith.gradients.grids.placement import Mode, Placement
from tilesmith.gradients.recurrences import KeptState
from tilesmith.gradients.tape import Tape
from tilesmith.gradients.terms import cotangent_dtype
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.ops.indexing import BlockSize
from tilesmith.ir.ops.memory import Atomic, AtomicKind, Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import ONE, Shape, Value, scalar


@dataclass(frozen=True)
class Buffer:
    """A tensor that the backward kernel makes and fills."""

    value: Value
    like: Value
    """The tensor that it is the gradient of."""
    placement: Placement
    parts: tuple[tuple[Value, str], ...] = ()
    """For each axis of parts: the end of its range in the grid, and its block."""


@dataclass(frozen=True)
class BackwardProgram:
    """Device code that computes gradients; ``source`` turns it into text."""

    function: Function
    forward: Function
    cotangents: tuple[tuple[Value, Value], ...]
    """Tensors that the forward function writes, with the tensors of their cotangents."""
    buffers: tuple[Buffer, ...]
    states: tuple[KeptState, ...] = ()
    """What loops keep; of those that nothing loads there is nothing left in the function."""
    reversed_loops: tuple[Value, ...] = ()
    """First arguments of loops that run from their last tile to the first."""
    handed: frozenset[Value] = frozenset()
    """Tensors that a first launch fills and a second one loads, or adds to."""
    views: tuple[tuple[Value, Value, Value], ...] = ()
    """Gradients of tensors in another shape, what those are views of, and the tensors."""
    passed: Mapping[Value, Value] = field(default_factory=dict[Value, Value])
    """What was in tensors before, with what is left of the cotangents of what is there then."""

    @property
    def consumed(self) -> set[Value]:
        """Cotangents that are set to zero once they are used: of stores that others follow."""
        stored = {op.tensor for op in walk(self.function.body) if isinstance(op, Store)}
        return stored & {cotangent for _, cotangent in self.cotangents}


class Names(set[str]):
    """Names of parameters: others can be made."""

    def make(self, wish: str) -> str:
        """A name that is free."""
        wishes = chain([wish], (f"{wish}_{number}" for number in count(2)))
        name = next(one for one in wishes if one not in self)
        self.add(name)
        return name


def like(tensor: Value, name: str) -> Value:
    """Another tensor of the same form."""
    return Value(replace(tensor.tensor, alias=-1), name, tensor.loc)


class GradientTensors:
    """The tensors of the backward function, as the reverse walk asks for them."""

    def __init__(
        self, cotangents: dict[Value, Value], plans: dict[Value, Placement], names: Names
    ) -> None:
        self.grid: Grid | None = None
        self.cotangents = cotangents
        self._plans = plans
        self._names = names
        self._buffers: dict[Value, Buffer] = {}

    def buffers(self) -> list[Buffer]:
        """Those that are written, in the order of the parameters."""
        return [self._buffers[v] for v in self._plans if v in self._buffers]

    def cotangent_of(self, tensor: Value) -> Value | None:
        """The cotangents of what is stored."""
        return self.cotangents.get(tensor)

    def _buffer(self, tensor: Value) -> Buffer:
        if tensor not in self._buffers:
            assert self.grid is not None
            placement = self._plans[tensor]
            is_final = placement.mode is Mode.STORE and not placement.parts
            kind = tensor.tensor
            dtype = kind.dtype if is_final else cotangent_dtype(kind.dtype)
            extra = (1,) * len(placement.parts)
            # Extents of parts are the host's: nothing here asks for them.
            shape, strides = (*extra, *kind.shape), (*extra, *kind.strides)
            kind = replace(kind, dtype=dtype, shape=shape, strides=strides, alias=-1)
            name = self._names.make(f"{'partial' if placement.parts else 'grad'}_{tensor.name}")
            ends = [(self.grid.ends[i], self.grid.blocks[i]) for i in placement.parts]
            value = Value(kind, name, tensor.loc)
            self._buffers[tensor] = Buffer(value, tensor, placement, tuple(ends))
        return self._buffers[tensor]

    def write(self, tape: Tape, op: Load, cotangent: Value) -> None:
        """Store a cotangent, or add it to what is there."""
        assert self.grid is not None
        buffer = self._buffer(op.tensor)
        writer, placement = tape.writer, buffer.placement
        numbers = [
            _number(tape, self.grid.body.args[axis], self.grid.blocks[axis])
            for axis in placement.parts
        ]
        indices = (*numbers, *map(tape.value, op.indices))
        mask = None if op.mask is None else tape.value(op.mask)
        value = writer.cast(cotangent, buffer.value.tensor.dtype)
        if placement.mode is Mode.ATOMIC:
            if mask is not None:
                value, indices = _idle_where_masked(writer, mask, value, indices)
            kind = AtomicKind.ADD.value
            fields = {"tensor": buffer.value, "value": value, "indices": indices}
            writer.create(Atomic, value.type, kind=kind, **fields)
            return
        if placement.mode is Mode.UPDATE:
            before = writer.create(
                Load, value.type, tensor=buffer.value, indices=indices, mask=mask
            )
            value = writer.apply("add", before, value)
        writer.effect(Store, tensor=buffer.value, value=value, indices=indices, mask=mask)


def _idle_where_masked(
    writer: TileWriter, mask: Value, value: Value, indices: tuple[Value, ...]
) -> tuple[Value, tuple[Value, ...]]:
    """Atomics have no mask in the language: masked lanes add nothing to the first element."""
    shape = value.tile.shape
    mask = _broadcast(writer, mask, shape)
    kept = writer.apply("where", mask, value, writer.full(value.tile, 0.0))
    wide = [_broadcast(writer, index, shape) for index in indices]
    return kept, tuple(writer.apply("where", mask, x, writer.full(x.tile, 0)) for x in wide)


def _broadcast(writer: TileWriter, x: Value, shape: Shape) -> Value:
    missing = len(shape) - x.tile.rank
    if missing:
        ones = x.tile.with_shape((*(ONE for _ in range(missing)), *x.tile.shape))
        x = writer.create(ExpandDims, ones, x=x, axes=tuple(range(missing)))
    if x.tile.shape == shape:
        return x
    return writer.create(Broadcast, x.tile.with_shape(shape), x=x)


def _number(tape: Tape, begin: Value, block: str) -> Value:
    """Which tile of the grid it is."""
    size = tape.writer.create(BlockSize, scalar(begin.tile.dtype), block=block)
    return tape.writer.apply("floordiv", begin, size)
