"""What is known of runtime integers while tracing.

As sums of multiples, so that ``s : s + 2 * t.block_size`` is known to be two blocks long; as
numbers that only the Config decides; and how many elements an axis holds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.frontend.refusals import unsupported_axis
from tilesmith.frontend.tracing.tracer import Tracer, current_tracer
from tilesmith.frontend.tracing.values import Scalar, TileValue
from tilesmith.interpreter.scalar_functions import SCALAR_FUNCTIONS_TORCH
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.types import Dim, Value


@dataclass(frozen=True)
class _Number:
    """An unknown value; those computed in the same way are equal: ``t.begin // 2`` is itself."""

    formula: Hashable
    value: Value = field(compare=False)


Linear = dict[_Number | str | None, int]
"""Coefficients of unknown values, of symbols (blocks and runtime sizes), and the constant."""


def length_between(start: Any, stop: Any, step: int = 1) -> Dim | None:
    """The length of a range, if it is a constant or a multiple of one symbol."""
    span = _sum(linear_form(stop), linear_form(start), -1)
    if not set(span) - {None}:
        return Dim.of(len(range(0, span.get(None, 0), step)))
    if len(span) > 1:
        return None
    ((symbol, count),) = span.items()
    if not isinstance(symbol, str) or count <= 0 or count % step:
        return None
    is_block = current_tracer("a size").find_block(symbol) is not None
    # Of each index of the block, all multiples follow each other: the valid ones come first.
    return Dim.of(symbol) * Dim.of(count // step) if is_block or count == step else None


def config_length(start: Any, stop: Any, step: int = 1) -> Dim | None:
    """The length of a range that only the Config decides, such as half a block.

    The trace then holds for these block sizes only.
    """
    tracer = current_tracer("a size")
    span = _sum(linear_form(stop), linear_form(start), -1)
    total = span.pop(None, 0)
    with tracer.eager():
        numbers = [(_number_of(tracer, key), count) for key, count in span.items()]
    if any(number is None for number, _ in numbers):
        return None
    total += sum(number * count for number, count in numbers if number is not None)
    return Dim.of(len(range(0, total, step)))


def _number_of(tracer: Tracer, key: _Number | str | None) -> int | None:
    if isinstance(key, str):
        return _block_size(tracer, key) if tracer.find_block(key) else None
    number = None if key is None else _find_number(tracer, key.value)
    return None if number is None else int(number.item())


def linear_form(number: Any) -> Linear:
    """An integer as a sum."""
    if not isinstance(number, TileValue):
        return {None: int(number)} if number else {}
    dim = number.as_dim if isinstance(number, Scalar) else None
    if dim is not None and len(dim.symbols) == 1:
        return {dim.symbols[0]: prod(f for f in dim.factors if isinstance(f, int))}
    if dim is None and isinstance(number, Scalar) and number.sum_of is not None:
        left, right = number.sum_of
        return _sum(linear_form(left), linear_form(right), 1)
    return _of_value(number.value)


def _of_value(value: Value) -> Linear:
    tracer = current_tracer("a size")
    op = tracer.builder.definition_of(value)
    if isinstance(op, Full):
        return {None: int(op.value)} if op.value else {}
    if isinstance(op, BlockSize):
        return {op.block: 1}
    if isinstance(op, Cast) and op.x.tile.dtype.is_integer:
        return _of_value(op.x)
    if isinstance(op, Elementwise) and op.fn in ("add", "sub", "mul"):
        return _of_operands(op, value)
    if isinstance(op, Elementwise) and op.fn == "floordiv":
        whole = _divided(*map(_of_value, op.args))
        if whole is not None:
            return whole
    is_size = op is None and value.name in tracer.sizes
    return {value.name if is_size else _Number(_formula(tracer, value), value): 1}


def _formula(tracer: Tracer, value: Value) -> Hashable:
    op = tracer.builder.definition_of(value)
    if isinstance(op, Full):
        return (value.tile, op.value)
    if isinstance(op, BlockSize):
        return (value.tile, op.block)
    if isinstance(op, Cast):
        return (value.tile, op.bitcast, _formula(tracer, op.x))
    if isinstance(op, Elementwise):
        return (value.tile, op.fn, *(_formula(tracer, arg) for arg in op.args))
    return value


def _of_operands(op: Elementwise, value: Value) -> Linear:
    left, right = map(_of_value, op.args)
    if op.fn != "mul":
        return _sum(left, right, 1 if op.fn == "add" else -1)
    for factor, other in ((left, right), (right, left)):
        if not set(factor) - {None}:
            return _sum({}, other, factor.get(None, 0))
    return {_Number(_formula(current_tracer("a size"), value), value): 1}


def _divided(left: Linear, right: Linear) -> Linear | None:
    """A sum divided by a constant, where nothing is left over."""
    divisor = right.get(None, 0)
    is_exact = set(right) == {None} and divisor and not any(n % divisor for n in left.values())
    return {key: count // divisor for key, count in left.items()} if is_exact else None


def _sum(left: Linear, right: Linear, scale: int) -> Linear:
    total = dict(left)
    for key, count in right.items():
        total[key] = total.get(key, 0) + scale * count
    return {key: count for key, count in total.items() if count}


def known_number(value: TileValue, what: str, *, specializes: bool = False) -> Any:
    """The value of an expression of block sizes and constants; the trace then holds for it only.

    ``what`` names it in errors. With ``specializes``, integer arguments become constants too.
    """
    tracer = current_tracer("hl.constexpr")
    with tracer.eager():
        if specializes:
            for argument in _arguments(tracer, value.value):
                tracer.arguments[argument] = tracer.host.specialize(tracer.arguments[argument])
        number = _find_number(tracer, value.value)
        if number is None:
            raise errors.ShapeSpecializingCall(
                value=what, fix="make it a constant on the host: n = hl.specialize(n)"
            )
        return number.item()


def _arguments(tracer: Tracer, value: Value) -> Iterator[Value]:
    """The integer arguments in an expression."""
    op = tracer.builder.definition_of(value)
    if value in tracer.arguments:
        yield value
    elif op is not None:
        for operand in op.operand_values():
            yield from _arguments(tracer, operand)


def _find_number(tracer: Tracer, value: Value) -> torch.Tensor | None:
    """What an expression of constants and block sizes comes to; None for any other."""
    op = tracer.builder.definition_of(value)
    dtype = to_torch(value.tile.dtype)
    number = tracer.arguments.get(value)
    if type(number) is int:
        return torch.tensor(number, dtype=dtype)
    if isinstance(op, Full):
        return torch.tensor(op.value, dtype=dtype)
    if isinstance(op, BlockSize):
        return torch.tensor(_block_size(tracer, op.block), dtype=dtype)
    if isinstance(op, Cast) and not op.bitcast:
        found = _find_number(tracer, op.x)
        return None if found is None else found.to(dtype)
    if not isinstance(op, Elementwise):
        return None
    operands = [_find_number(tracer, arg) for arg in op.args]
    is_known = all(operand is not None for operand in operands)
    return SCALAR_FUNCTIONS_TORCH[op.fn](*operands) if is_known else None


def _block_size(tracer: Tracer, name: str) -> int:
    block = tracer.find_block(name)
    assert block is not None
    if block.fixed is not None:
        return block.fixed
    assert block.slot is not None
    tracer.host.observed_slots.add(block.slot)
    return tracer.host.block_size(block.slot)


def config_size(dim: Dim) -> int | None:
    """The size of a dimension under this Config; None where it depends on runtime sizes.

    The trace then holds for these block sizes only.
    """
    tracer = current_tracer("a size")
    sizes = [f if isinstance(f, int) else _number_of(tracer, f) for f in dim.factors]
    known = [size for size in sizes if size is not None]
    return prod(known) if len(known) == len(sizes) else None


def has_full_tiles(dim: Dim) -> bool:
    """Whether all tiles of a dimension's blocks are full under this Config."""
    tracer = current_tracer("a size")
    for name in dim.symbols:
        tile = tracer.find_tile(name)
        if tile is not None:
            length = length_between(tile.range_begin, tile.range_end)
            count = None if length is None else length.constant
            if count is None or count % _block_size(tracer, name):
                return False
    return True


@dataclass(frozen=True)
class LaneCounts:
    """The elements in the emptiest and in the fullest tile."""

    least: int
    most: int


def find_counts(x: TileValue, axis: int, function: str) -> LaneCounts | None:
    """The counts of an axis; None where they are not known."""
    try:
        return known_counts(x, axis, function)
    except errors.BackendUnsupported:
        return None


def known_counts(x: TileValue, axis: int, function: str) -> LaneCounts:
    """The counts of an axis along which a function needs to know them."""
    dim = x.tile.shape[axis]
    if dim.constant is not None:
        return LaneCounts(dim.constant, dim.constant)
    block = current_tracer(function).find_block(dim.symbol)
    if block is None or block.fixed is None:
        raise _not_known(x, axis, function, "tiles of a size that the config chooses")
    if current_tracer(function).find_tile(block.name) is None:
        return LaneCounts(block.fixed, block.fixed)
    if block.extent is None:
        raise _not_known(x, axis, function, f"tiles of {block.fixed} over a range that may vary")
    return LaneCounts(block.extent % block.fixed or block.fixed, min(block.extent, block.fixed))


def known_count(x: TileValue, axis: int, function: str) -> int:
    """The one count of all tiles along an axis."""
    counts = known_counts(x, axis, function)
    if counts.least != counts.most:
        found = f"tiles of {counts.most}, and one of {counts.least}"
        raise _not_known(x, axis, function, found)
    return counts.least


def _not_known(x: TileValue, axis: int, function: str, found: str) -> errors.BaseError:
    return unsupported_axis(
        f"{function} along the tile axis {x.tile.shape[axis]}",
        expected="an axis whose number of elements is known: all of it, or equal parts",
        found=found,
        fix="load the whole axis with `:`, or in one tile: "
        "hl.tile(n, block_size=helion.next_power_of_2(n)) with n known (n = hl.specialize(n))",
    )
