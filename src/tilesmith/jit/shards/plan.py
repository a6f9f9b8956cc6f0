"""Whether a kernel is right on shards, and how its results are then sharded.

One dimension of some arguments is sharded. Every loop axis that indexes it must have independent
tiles and go over the whole dimension; every other tensor that such an axis indexes is sharded along
with it. Where that does not work out, the reason is given. Tiles are independent if where they
stand is used to index tensors and for nothing else, if their lanes never meet, and if
everything is stored at the tile's own place: that is read off the trace, not guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

import torch

from tilesmith.analysis.effects import is_elsewhere
from tilesmith.compiler.specialization import Specialization, Variant
from tilesmith.frontend.containers import map_tensors, tensors_in
from tilesmith.frontend.trace import TraceRequest
from tilesmith.ir.axis_roles import Role
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import TileType, Value
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.shards.host_runs import HostComputesError, HostRun, run_host, shadow
from tilesmith.runtime.arguments import compile_guard, compile_reader

META = torch.device("meta")
_APART = (Role.KEPT, Role.REPEATED)
_PLACES = (TileIndex, ExpandDims, Broadcast, Cast)
"""Ops that hand on where a tile stands."""
_LENGTHS = (7, 11)
"""Of sharded dimensions, while looking: 0 and 1 are compiled apart, others rarely have these."""
Sharded = Mapping[int, int]
"""Numbers of tensors among the arguments, and which of their dimensions is sharded."""


class NotShardedError(Exception):
    """Why a kernel is not right on shards."""


@dataclass(frozen=True)
class _Base:
    """A tensor that host code was given, or returns, behind one that device code sees."""

    tensor: torch.Tensor
    is_flat: bool = False
    """Device code sees its elements in one line."""


@dataclass(eq=False)
class GridAxis:
    """One axis of a top-level loop, by the value that is the first index of its tiles."""

    begin: Value
    low: Value
    high: Value
    """The range it goes over."""
    block: str
    """Empty where it goes over single indices."""
    problem: str = ""
    """Why its tiles are not independent; empty if they are."""
    accesses: dict[tuple[Operation, int], Value] = field(default_factory=dict)
    """Accesses that it indexes, along which dimension, and their tensors."""

    def refuse(self, problem: str) -> None:
        """Note why its tiles are not independent; the first reason counts."""
        self.problem = self.problem or problem


def find_axes(function: Function) -> list[GridAxis]:
    """The axes of all top-level loops."""
    found: list[GridAxis] = []
    has_barriers = False
    for op in function.body.ops:
        has_barriers = has_barriers or isinstance(op, (GridBarrier, GroupBarrier))
        if isinstance(op, Grid):
            found += _GridReader(op).axes
    for axis in found:
        if has_barriers:
            axis.refuse("its programs wait for each other")
    return found


def accesses_of(function: Function, tensor: Value) -> list[Operation]:
    """All ops that read or write a tensor."""
    ops = (op for op in walk(function.body) if isinstance(op, (Load, Store, Atomic)))
    return [op for op in ops if op.tensor is tensor]


class _GridReader:
    """Reads one top-level loop."""

    def __init__(self, grid: Grid) -> None:
        ranges = zip(grid.body.args, grid.begins, grid.ends, grid.blocks)
        self.axes = [GridAxis(begin, low, high, block) for begin, low, high, block in ranges]
        self._places: dict[Value, GridAxis] = {axis.begin: axis for axis in self.axes}
        """Values that say where the tile of an axis stands, and nothing else."""
        for op in walk(grid.body):
            self._read(op)

    def _read(self, op: Operation) -> None:
        self._read_lanes(op)
        if isinstance(op, (Load, Store, Atomic)):
            self._read_access(op)
            return
        if isinstance(op, _PLACES):
            (source,) = op.operand_values()
            axis = self._places.get(source)
            if axis is not None:
                self._places[op.results[0]] = axis
            return
        self._refuse_places(op, op.operand_values())

    def _refuse_places(self, op: Operation, values: Iterator[Value]) -> None:
        for value in values:
            axis = self._places.get(value)
            if axis is not None:
                axis.refuse(f"{_line(op)} computes with the position of a tile")

    def _read_access(self, op: Load | Store | Atomic) -> None:
        if is_elsewhere(op):
            for axis in self.axes:
                axis.refuse(f"{_line(op)} goes to computed addresses")
        found = [self._places.get(index) for index in op.indices]
        for dim, axis in enumerate(found):
            if axis is not None:
                axis.accesses[op, dim] = op.tensor
                if found.count(axis) > 1:
                    axis.refuse(f"{_line(op)} has one tile twice")
        others = (v for v in op.operand_values() if v is not op.tensor and v not in op.indices)
        self._refuse_places(op, others)
        if not isinstance(op, Load):
            for axis in self.axes:
                if axis not in found:
                    axis.refuse(f"{_line(op)} stores to `{op.tensor.name}` from all of its tiles")

    def _read_lanes(self, op: Operation) -> None:
        """Refuse axes whose lanes meet in an op."""
        if isinstance(op, Yield):
            return
        for value, roles in zip(op.operand_values(), op.axis_roles()):
            if not isinstance(value.type, TileType):
                continue
            for dim, role in zip(value.type.shape, roles):
                if role.role not in _APART:
                    self._refuse_dim(op, dim.factors)

    def _refuse_dim(self, op: Operation, factors: tuple[int | str, ...]) -> None:
        for axis in self.axes:
            if axis.block and axis.block in factors:
                axis.refuse(f"{_line(op)} computes with several elements of a tile together")


def _line(op: Operation) -> str:
    return f"line {op.loc.line}" if op.loc.line else f"`{op.name}`"


def shard_results(
    definition: KernelDefinition, args: tuple[Any, ...], sharded: Sharded
) -> list[int | None]:
    """For each tensor that is returned, its sharded dimension, None of one that all have whole.

    Raises NotShardedError where results on shards would not be shards of the result.
    """
    settings = replace(definition.settings, static_shapes=False)
    dynamic = definition.changed(settings=settings, configs=definition.configs)
    changed = [_with_length(args, sharded, length) for length in _LENGTHS]
    try:
        runs = [run_host(dynamic, given) for given in changed]
    except HostComputesError as found:
        raise NotShardedError(f"its host code computes `{found}`") from None
    except (AssertionError, RuntimeError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise NotShardedError(f"its host code refuses tensors sharded like this: {first}") from None
    closure = _Closure(dynamic, trace_shadows(dynamic, changed[0]), runs)
    for number, dim in sharded.items():
        closure.shard(runs[0].arguments[number], dim)
    for number, tensor in enumerate(runs[0].arguments):
        found_dim = closure.dims.get(id(tensor))
        if found_dim != sharded.get(number):
            raise NotShardedError(f"{_nth(number)} is to be sharded along dimension {found_dim}")
    return list(closure.result_dims())


def _nth(number: int) -> str:
    return f"tensor {number + 1} of its arguments"


def _with_length(args: tuple[Any, ...], sharded: Sharded, length: int) -> tuple[Any, ...]:
    """Arguments without memory whose sharded dimensions have another length, in proportion."""
    tensors = list(tensors_in(args))
    unit = gcd(*(tensors[number].shape[dim] for number, dim in sharded.items())) or 1
    made: list[torch.Tensor] = []
    for number, tensor in enumerate(tensors):
        dim = sharded.get(number)
        parts = 0 if dim is None else tensor.shape[dim] // unit
        made.append(shadow(tensor, dim, length * max(parts, 1)))
    numbers = iter(made)
    return map_tensors(args, lambda _: next(numbers))


class _Closure:
    """Which tensors are sharded along with others."""

    def __init__(self, definition: KernelDefinition, variant: Variant, runs: list[HostRun]) -> None:
        self.dims: dict[int, int] = {}
        """By the identity of a tensor, which dimension is sharded."""
        self._runs = runs
        trace = variant.trace
        self._function = trace.function
        self._known = definitions(trace.function.body)
        captured = definition.split.captured
        guard = compile_guard(captured, trace.guards, trace.constants)
        if guard is not None and not all(guard(*run.captured) for run in runs):
            raise NotShardedError("its code depends on the sharded size")
        parameters = [p for p in trace.function.parameters if not p.is_zeroed]
        read = compile_reader(captured, [p.source for p in parameters], trace.constants)
        values = [p.value for p in parameters]
        self._numbers = [dict(zip(values, read(*run.captured))) for run in runs]
        self._bases = {
            value: self._base(found)
            for value, found in self._numbers[0].items()
            if isinstance(found, torch.Tensor)
        }
        self._axes = find_axes(trace.function)
        self._check_numbers()

    def _base(self, seen: torch.Tensor) -> _Base:
        candidates = [*self._runs[0].arguments, *tensors_in(self._runs[0].result)]
        if any(seen is tensor for tensor in candidates):
            return _Base(seen)
        for tensor in candidates:
            is_line = seen.dim() == 1 and seen.numel() == tensor.numel()
            if is_line and seen.untyped_storage() is tensor.untyped_storage():
                return _Base(tensor, is_flat=tensor.dim() != 1)
        return _Base(seen)

    def _check_numbers(self) -> None:
        """Refuse numbers that follow from the sharded size anywhere but in the range of a loop."""
        one, two = self._numbers
        follows = {v for v in one if v not in self._bases and one[v] != two[v]}
        outside = set(self._function.body.ops)
        for op in walk(self._function.body):
            used = [value for value in op.operand_values() if value in follows]
            if not used or isinstance(op, Grid):
                continue
            if op not in outside or not isinstance(op, Elementwise):
                name = used[0].name or "a number"
                raise NotShardedError(f"`{name}`, which follows from the sharded size, is used")
            follows.update(op.results)
        if self._runs[0].fills != self._runs[1].fills:
            raise NotShardedError("a tensor is filled with what follows from the sharded size")

    def shard(self, tensor: torch.Tensor, dim: int) -> None:
        """Take a tensor for sharded, and all that is sharded then."""
        known = self.dims.setdefault(id(tensor), dim)
        if known != dim:
            raise NotShardedError(f"one tensor would be sharded along dimensions {known} and {dim}")
        for value, base in self._bases.items():
            if base.tensor is tensor:
                self._shard_accesses(value, base, dim)
            elif base.tensor.untyped_storage() is tensor.untyped_storage():
                raise NotShardedError(f"device code sees another view of it, `{value.name}`")

    def _shard_accesses(self, value: Value, base: _Base, dim: int) -> None:
        place = 0 if base.is_flat else dim
        for op in accesses_of(self._function, value):
            axis = next((axis for axis in self._axes if (op, place) in axis.accesses), None)
            if axis is None:
                line = f" (line {op.loc.line})" if op.loc.line else ""
                problem = f"`{value.name}` is not taken tile by tile along dimension {dim}{line}"
                raise NotShardedError(problem)
            self._shard_axis(axis, base, dim)

    def _shard_axis(self, axis: GridAxis, base: _Base, dim: int) -> None:
        if axis.problem:
            raise NotShardedError(axis.problem)
        for (_, place), value in axis.accesses.items():
            other = self._bases[value]
            is_alike = other.is_flat == base.is_flat
            if not is_alike or (base.is_flat and other.tensor.shape != base.tensor.shape):
                raise NotShardedError(f"`{value.name}` has another shape in device code")
            self._check_range(axis, value, place)
            along = dim if base.is_flat else place
            if self.dims.get(id(other.tensor)) != along:
                self.shard(other.tensor, along)

    def _check_range(self, axis: GridAxis, value: Value, place: int) -> None:
        base = self._bases[value]
        length = base.tensor.numel() if base.is_flat else base.tensor.shape[place]
        if self._number(axis.low) != 0 or self._number(axis.high) != length:
            raise NotShardedError(f"a loop does not go over all of `{value.name}`")

    def _number(self, value: Value) -> Any:
        """What a scalar outside of all loops is; None if that is not known."""
        if value in self._numbers[0]:
            return self._numbers[0][value]
        op = self._known.get(value)
        if isinstance(op, Full):
            return op.value
        if isinstance(op, Elementwise) and op.fn == "mul":
            first, second = map(self._number, op.args)
            return None if first is None or second is None else first * second
        return None

    def result_dims(self) -> Iterator[int | None]:
        """For each tensor that is returned, its sharded dimension."""
        known = [*self._runs[0].arguments, *(base.tensor for base in self._bases.values())]
        for tensor, other in zip(*(tensors_in(run.result) for run in self._runs)):
            if not any(tensor is seen for seen in known):
                raise NotShardedError("it returns a view of what device code has written")
            dim = self.dims.get(id(tensor))
            changed = [i for i, n in enumerate(tensor.shape) if n != other.shape[i]]
            if changed != ([] if dim is None else [dim]):
                raise NotShardedError("the shape of a result follows from the sharded size")
            yield dim


def trace_shadows(definition: KernelDefinition, args: tuple[Any, ...]) -> Variant:
    """A trace for tensors without memory."""
    request = TraceRequest(
        definition.split,
        args,
        definition.constant_positions(args),
        definition.trace_options,
        META,
        warnings=definition.warnings,
        host_objects=definition.host_objects(args),
    )
    return Specialization(request, definition.settings, definition.backends).default
