"""Products of tf32 on Hopper whose right operand lies along its columns.

Asynchronous products read 32-bit tiles from shared memory only if these lie along the sum. Triton
turns the right operand of plain matrices around in shared memory, and waits for it. But a left one
may come from registers, in any order: so the product of the transposes is computed instead, with
what was the right operand from registers, and the transposed accumulator is carried by the loop.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from tilesmith.backends.triton.emission.spelling import Expr, literal, triton_dtype
from tilesmith.dtypes import F16, F32, DType
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop, Yield
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.shape import Permute
from tilesmith.ir.traversal import count_uses, definitions, rewrite_function
from tilesmith.ir.types import TileType, Value
from tilesmith.schedule.schedule import Schedule
from tilesmith.targets import Target

HOPPER, BLACKWELL = 90, 100
LEAST_WARPS, LEAST_ROWS = 4, 64
"""Of an asynchronous product; with fewer warps the older instructions are used."""
UNUSED_BITS = 8191
"""Of an fp32 number, which the units ignore."""
Definitions = Mapping[Value, Operation]


def turn_products(function: Function, schedule: Schedule) -> Function:
    """The function with products of transposes in loops where that saves the turning."""
    if schedule.num_warps < LEAST_WARPS or not _is_hopper(schedule.target):
        return function
    uses = count_uses(function.body)

    def rewrite(op: Operation) -> Operation | list[Operation]:
        if not isinstance(op, Loop):
            return op
        inside = definitions(op.body)
        found = [_accumulated(op, position, inside, uses) for position in range(len(op.init))]
        large = [dot for dot in found if dot and _is_large(dot, schedule)]
        return _LoopTurner(op, large).write() if large else op

    return rewrite_function(function, rewrite)


def comes_from_registers(dot: Dot, inside: Definitions, schedule: Schedule) -> bool:
    """Whether the left operand is a turned load, which the units take from registers only."""
    turned = inside.get(dot.lhs)
    is_turned = isinstance(turned, Permute) and _lies_along_last(turned.x, inside)
    is_async = schedule.num_warps >= LEAST_WARPS and _is_hopper(schedule.target)
    return is_turned and is_async and _is_rounded_word(dot)


def computed(operand: Expr) -> Expr:
    """A turned operand that stays in registers, as it is computed: without bits of no use."""
    return _seen_as(_seen_as(operand, "int32").infix("&", literal(~UNUSED_BITS)), "float32")


def awaited(product: Expr, dtype: DType) -> Expr:
    """The same bits: what looks at the result makes Triton wait for it."""
    other = {F32: "int32", F16: "int16"}.get(dtype, "float32")
    return _seen_as(_seen_as(product, other), triton_dtype(dtype).removeprefix("tl."))


def _seen_as(expr: Expr, dtype: str) -> Expr:
    return expr.method("to", f"tl.{dtype}", "bitcast=True")


def leaves_registers_in_flight(
    dot: Dot, inside: Definitions, schedule: Schedule, identities: Container[Operation]
) -> bool:
    """Whether Triton may begin the next turn while a product still reads registers of this one.

    It does where a product with a computed left operand only adds to what a loop carries. The next
    turn writes the operand's registers, and neither Triton 3.6 or 3.7 nor ptxas waits: results of
    tf32 were wrong on an H200, and code for other types has the same order. Left operands that are
    loaded come from shared memory.
    """
    is_async = schedule.num_warps >= LEAST_WARPS and _is_hopper(schedule.target)
    bits, rows = dot.lhs.tile.dtype.bits, schedule.physical(dot.result.tile.shape[-2])
    uses_units = bits < 32 or (bits == 32 and dot.precision != "ieee")
    if not is_async or not uses_units or rows < LEAST_ROWS or dot.acc is None:
        return False
    is_turned = comes_from_registers(dot, inside, schedule)
    if not is_turned and _is_view_of_load(dot.lhs, inside, identities):
        return False
    return dot.acc not in inside or isinstance(inside[dot.acc], Dot)


def _is_view_of_load(value: Value, inside: Definitions, identities: Container[Operation]) -> bool:
    """Whether an operand is loaded, seen from other axes or masked in vain."""
    op = inside.get(value)
    while isinstance(op, Permute) or (isinstance(op, Mask) and op in identities):
        op = inside.get(op.x)
    return isinstance(op, Load)


def _is_hopper(target: Target) -> bool:
    return target.kind == "cuda" and HOPPER <= target.capability < BLACKWELL


def _is_rounded_word(dot: Dot) -> bool:
    is_word = dot.lhs.tile.dtype == dot.rhs.tile.dtype == dot.result.tile.dtype == F32
    return is_word and dot.precision == "tf32" and dot.lhs.tile.rank == 2


def _is_large(dot: Dot, schedule: Schedule) -> bool:
    """Whether columns, which become rows, fill an instruction."""
    return schedule.physical(dot.result.tile.shape[-1]) >= LEAST_ROWS


def _accumulated(
    loop: Loop, position: int, inside: Definitions, uses: Mapping[Value, int]
) -> Dot | None:
    """The product that adds to a carried tile, which nothing else in the loop looks at."""
    dot, arg = inside.get(loop.body.yielded[position]), loop.carried[position]
    if not isinstance(dot, Dot) or dot.acc is not arg or dot not in loop.body.ops:
        return None
    is_alone = uses.get(arg) == 1 and uses.get(dot.result) == 1
    are_rows = all(_lies_along_last(x, inside) for x in (dot.lhs, dot.rhs))
    return dot if is_alone and are_rows and _is_rounded_word(dot) else None


def _lies_along_last(value: Value, inside: Definitions) -> bool:
    """Whether a tile is loaded as it is, with neighbours in memory along its last axis."""
    load = inside.get(value)
    if not isinstance(load, Load) or load.tensor.tensor.strides[-1:] != (1,):
        return False
    last = load.indices[-1].tile.shape
    return last[-1:] == value.tile.shape[-1:] and all(dim.is_one for dim in last[:-1])


def _transposed(kind: TileType) -> TileType:
    return kind.with_shape(kind.shape[::-1])


def _turn(value: Value) -> Permute:
    result = value.like(_transposed(value.tile))
    return Permute(x=value, order=(1, 0), results=(result,), loc=value.loc)


class _LoopTurner:
    """Writes one loop that carries transposed accumulators."""

    def __init__(self, loop: Loop, dots: list[Dot]) -> None:
        self._loop, self._dots = loop, dots
        self._positions = [loop.body.yielded.index(dot.result) for dot in dots]
        turned = [loop.carried[position] for position in self._positions]
        self._values = {
            value: value.like(_transposed(value.tile))
            for value in (*turned, *(dot.result for dot in dots))
        }

    def write(self) -> list[Operation]:
        """What the loop begins with turned, the loop, and its results turned back."""
        loop, positions = self._loop, self._positions
        before = {position: _turn(loop.init[position]) for position in positions}
        init = [before[i].result if i in before else x for i, x in enumerate(loop.init)]
        results = [
            x.like(_transposed(x.tile)) if i in before else x for i, x in enumerate(loop.results)
        ]
        args = [self._values.get(arg, arg) for arg in loop.body.args]
        ops = [written for op in loop.body.ops for written in self._write(op)]
        turned = replace(
            loop, init=tuple(init), results=tuple(results), body=Region(tuple(args), tuple(ops))
        )
        after = [
            Permute(x=results[i], order=(1, 0), results=(loop.results[i],), loc=loop.loc)
            for i in positions
        ]
        return [*before.values(), turned, *after]

    def _write(self, op: Operation) -> list[Operation]:
        if isinstance(op, Yield):
            return [op.with_operands(lambda value: self._values.get(value, value))]
        if not isinstance(op, Dot) or op not in self._dots:
            return [op]
        assert op.acc is not None
        lhs, rhs = _turn(op.rhs), _turn(op.lhs)
        result, acc = self._values[op.result], self._values[op.acc]
        dot = replace(op, lhs=lhs.result, rhs=rhs.result, acc=acc, results=(result,))
        return [lhs, rhs, dot]
