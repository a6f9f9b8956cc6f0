"""Whether a kernel is right on shards, and how its results are then sharded.

One dimension of some arguments is sharded. Every loop axis that indexes it must have independent
tiles (``independence.py``) and go over the whole dimension; every other tensor that such an
axis indexes is sharded along with it. Where that does not work out, the reason is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import torch

from tilesmith.compiler.specialization import Specialization, Variant
from tilesmith.frontend.containers import map_tensors, tensors_in
from tilesmith.frontend.trace import TraceRequest
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import Value
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.shards.host_runs import HostComputesError, HostRun, run_host, shadow
from tilesmith.jit.shards.independence import GridAxis, accesses_of, find_axes
from tilesmith.runtime.arguments import compile_guard, compile_reader

META = torch.device("meta")
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
    closure = _Closure(dynamic, _trace(dynamic, changed[0]), runs)
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
        for tensor in tensors_in(self._runs[0].result):
            if not any(tensor is other for other in known):
                raise NotShardedError("it returns a view of what device code has written")
            yield self.dims.get(id(tensor))


def _trace(definition: KernelDefinition, args: tuple[Any, ...]) -> Variant:
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
