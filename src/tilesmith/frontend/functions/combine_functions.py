"""Functions that users combine elements with, traced once on scalars into a region.

What a function reads from outside (runtime numbers, block sizes) becomes an operand like the
tensors it combines: regions of combinations know nothing but their arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import BOOL, DType
from tilesmith.frontend.refusals import invalid_kind
from tilesmith.frontend.tracing.emission import Number, apply, as_tile, select
from tilesmith.frontend.tracing.tracer import Tracer, current_tracer, locate
from tilesmith.frontend.tracing.values import TileValue
from tilesmith.interpreter.reduction import combine_elements
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import If, Yield
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import BlockSize
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.reduction import COMBINE_OPS, Reduce, Scan
from tilesmith.ir.types import TileType, Value, scalar

REDUCE, SCAN = "hl.reduce", "hl.associative_scan"
COMBINERS = (REDUCE, SCAN)
"""Functions that take combine functions; the regions these are traced in go by the same names."""

_WORDING: dict[type[Operation], str] = {
    Load: "a load",
    Store: "a store",
    Atomic: "an atomic operation",
    Reduce: "a reduction",
    Scan: "a scan",
    Dot: "a matrix product",
    If: "a branch on a device value",
}
Tiles = tuple[TileValue, ...]


@dataclass(frozen=True)
class Combination:
    """A combine function as a region, and the values from outside that are operands too."""

    name: str
    region: Region
    captured: tuple[Value, ...]

    @property
    def scalar_function(self) -> str | None:
        """The scalar function that is applied to the two arguments, if that is all there is."""
        op = self.region.ops[0]
        if not isinstance(op, Elementwise) or set(op.args) != set(self.region.args):
            return None
        is_all = len(self.region.ops) == 2 and self.region.yielded == op.results
        return op.fn if is_all else None

    def is_identity(self, others: tuple[Number, ...]) -> bool:
        """Whether combining with ``others`` changes nothing, as far as samples tell."""
        if self.captured:
            return False
        elements = [to_torch(arg.tile.dtype) for arg in self.region.args[: len(others)]]
        with current_tracer(self.name).eager():
            same = tuple(torch.tensor([n] * 5, dtype=d) for n, d in zip(others, elements))
            pairs = zip(elements, same)
            # The identity itself is among the samples: it may not even combine with itself.
            xs = tuple(torch.tensor([1, -2, 5, 0.5, float(y[0])]).to(d) for d, y in pairs)
            found = [combine_elements(self.region, *sides) for sides in ((xs, same), (same, xs))]
            return all(torch.equal(x, y) for result in found for x, y in zip(result, xs))


@dataclass(frozen=True)
class CombineCall:
    """A combine function, what it is given to, and whether it combines tuples."""

    combine_fn: Any
    function: str
    is_tuple: bool


def trace_combination(
    call: CombineCall, dtypes: tuple[DType, ...], *, is_flagged: bool = False
) -> Combination:
    """Run a combine function on scalars of these types.

    With flags, the last element on each side says whether the others count.
    """
    tracer = current_tracer(call.function)
    fn = _function_of(call)
    kinds = (*dtypes, BOOL) if is_flagged else dtypes
    args = tuple(_arguments(kinds))
    with tracer.open_region(call.function):
        tiles = tuple(map(TileValue, args))
        left, right = tiles[: len(kinds)], tiles[len(kinds) :]
        pairs = list(zip(left, right))[: len(dtypes)]
        found = _results(call, _apply_function(fn, call, pairs), dtypes)
        if is_flagged:
            found = _combine_flagged(found, pairs, (left[-1], right[-1]))
        tracer.builder.effect(Yield, values=tuple(result.value for result in found))
    region = _hoist_sizes(tracer.take_region(args), tracer)
    _check_ops(region, call.function)
    name = getattr(fn, "__name__", "")
    # Lambdas in device code go by the name of the kernel.
    name = "combine_fn" if name in ("", "<lambda>", tracer.name) else name
    return _lift_captured(name, region)


def _function_of(call: CombineCall) -> Callable[..., Any]:
    """The function itself where a kernel stands for what it decorates."""
    given = call.combine_fn
    fn = given if inspect.isroutine(given) else getattr(given, "fn", given)
    if not callable(fn):
        raise invalid_kind(call.function, f"{kind_of(fn)} is no combine function")
    return fn


def _arguments(dtypes: tuple[DType, ...]) -> Iterator[Value]:
    for side in ("left", "right"):
        for position, dtype in enumerate(dtypes):
            suffix = f"_{position}" if len(dtypes) > 1 else ""
            yield Value(scalar(dtype), f"{side}{suffix}", locate())


def _apply_function(
    fn: Callable[..., Any], call: CombineCall, pairs: list[tuple[TileValue, TileValue]]
) -> Any:
    """The function of two elements, of two tuples of them, or of all of them one by one."""
    left, right = zip(*pairs)
    if not call.is_tuple or _takes_elements(fn, 2 * len(pairs), call.function):
        return fn(*left, *right)
    return fn(left, right)


def _combine_flagged(
    found: Tiles, pairs: list[tuple[TileValue, TileValue]], flags: tuple[TileValue, TileValue]
) -> Tiles:
    """The combination of two elements that count, or the one that does."""
    both = apply("and", *flags)
    chosen = (select(both, result, select(flags[0], *pair)) for result, pair in zip(found, pairs))
    return (*chosen, apply("or", *flags))


def _takes_elements(fn: Callable[..., Any], count: int, function: str) -> bool:
    """Whether a function of tuples wants all elements as arguments of their own."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return True
    kinds = [parameter.kind for parameter in parameters]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return True
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [parameter for parameter in parameters if parameter.kind in named]
    required = sum(parameter.default is inspect.Parameter.empty for parameter in positional)
    if required <= 2 <= len(positional):
        return False
    if required <= count <= len(positional):
        return True
    raise invalid_kind(
        function,
        f"the combine function takes {len(positional)} arguments; for {count // 2} tensors "
        f"it must take 2 tuples or {count} elements",
    )


def _results(call: CombineCall, found: Any, dtypes: tuple[DType, ...]) -> Tiles:
    results = tuple(found) if isinstance(found, (tuple, list)) else (found,)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if len(results) != len(dtypes):
        raise invalid_kind(
            call.function,
            f"the combine function must return as many values as there are tensors, "
            f"{len(dtypes)}, not {len(results)}",
        )
    return tuple(as_tile(result, dtype) for result, dtype in zip(results, dtypes))


def _hoist_sizes(region: Region, tracer: Tracer) -> Region:
    """Block sizes asked for inside are asked for outside."""
    sizes = [op for op in region.ops if isinstance(op, BlockSize)]
    for op in sizes:
        tracer.builder.insert(op)
    return Region(region.args, tuple(op for op in region.ops if op not in sizes))


def _check_ops(region: Region, function: str) -> None:
    inside = {*region.args, *(value for op in region.ops for value in op.results)}
    found = [
        (op, "a tensor from outside")
        for op in region.ops
        for value in op.operand_values()
        if isinstance(value.type, TileType) and value.tile.rank and value not in inside
    ]
    found += [
        (op, _WORDING.get(type(op), f"`{op.name}`"))
        for op in region.ops
        if not isinstance(op, COMBINE_OPS)
    ]
    for op, operation in found:
        raise errors.NotAllowedInHelperFunction(operation=operation, function=function, loc=op.loc)


def _lift_captured(name: str, region: Region) -> Combination:
    """Let values from outside be arguments, the same ones on both sides."""
    known = {*region.args, *(value for op in region.ops for value in op.results)}
    used = dict.fromkeys(value for op in region.ops for value in op.operand_values())
    captured = tuple(value for value in used if value not in known)
    if not captured:
        return Combination(name, region, ())
    half = len(region.args) // 2
    lefts, rights = (tuple(value.like() for value in captured) for _ in range(2))
    args = (*region.args[:half], *lefts, *region.args[half:], *rights)
    inside = dict(zip(captured, lefts))
    ops = [op.with_operands(lambda value: inside.get(value, value)) for op in region.ops]
    end = Yield(values=(*tuple(ops[-1].operand_values()), *lefts), loc=ops[-1].loc)
    return Combination(name, Region(args, (*ops[:-1], end)), captured)
