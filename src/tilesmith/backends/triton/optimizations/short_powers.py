"""Powers of e by the hardware's powers of two, where nothing shows the difference.

The library splits an exponent into a whole number and a rest before it asks the hardware: eight
instructions for each element. ``2 ** (x * log2(e))`` is two. It is off by ``|x|`` units of 2^-24,
relative, for the product is rounded, and takes powers below 2^-126 for zero.

Sums around a maximum do not show it. Their terms are ``exp(-d)`` with one ``d`` of 0, and a sum of
``n`` of them is off by the mean of ``d`` weighted with the terms, which is at most ``log(n)``: the
entropy of the weights is the logarithm of the sum and that mean, and at most ``log(n)``.

Floats of 16 bits do not show it either, where powers are only multiplied, divided or chosen before
they are rounded: 104 units at most, an 80th of what rounding adds. Powers below 2^-126 are numbers
of bfloat16, so these are squares of powers of half the exponent: three instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import e, log2

from tilesmith.backends.triton.emission.idle_lanes import find_users
from tilesmith.backends.triton.emission.rounded_quotients import find_passed, find_rounded_values
from tilesmith.backends.triton.optimizations.power_sums import find_peak
from tilesmith.backends.triton.workarounds.subnormals import subnormal_options
from tilesmith.dtypes import F32
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import definitions, rewrite_function
from tilesmith.ir.types import Value
from tilesmith.schedule.schedule import Schedule

LOG2_E = log2(e)


def power_around_maximum(write: TileWriter, fn: str, x: Value) -> Value:
    """``exp`` or ``exp2`` of differences to a maximum that are only added up."""
    if fn == "exp":
        fn, x = "exp2", write.apply("mul", x, write.full(x.tile, LOG2_E))
    return write.apply(fn, x)


def shorten_powers(function: Function, schedule: Schedule) -> Function:
    """The function with such powers.

    Before::

        %off = elementwise(%x, %peaks) {fn="sub"} : f32[row]
        %powers = elementwise(%off) {fn="exp"} : f32[row]
        %total = reduce(%powers) {axis=0, kind="sum"} : f32[]

    After::

        %exponents = elementwise(%off, %factor) {fn="mul"} : f32[row]
        %powers = elementwise(%exponents) {fn="exp2"} : f32[row]
        %total = reduce(%powers) {axis=0, kind="sum"} : f32[]
    """
    known = definitions(function.body)
    powers = [op for op in known.values() if isinstance(op, Elementwise) and op.fn == "exp"]
    # Where numbers below 2^-126 are kept, powers of two are as long as the library's.
    if not powers or subnormal_options(function, schedule):
        return function
    uses = _Uses(function, known)

    def rewrite(op: Operation) -> Operation | list[Operation]:
        if not isinstance(op, Elementwise) or op.fn != "exp":
            return op
        is_summed, is_rounded = uses.find(op)
        return _write(op, is_squared=is_rounded) if is_summed or is_rounded else op

    return rewrite_function(function, rewrite)


def _write(op: Elementwise, *, is_squared: bool) -> list[Operation]:
    write, (x,) = TileWriter(lambda: op.loc), op.args
    wide = write.cast(x, F32)
    factor = write.full(wide.tile, LOG2_E / 2 if is_squared else LOG2_E)
    power = write.apply("exp2", write.apply("mul", wide, factor))
    power = write.apply("mul", power, power) if is_squared else power
    ops = [*write.close_region().ops]
    if power.tile.dtype != op.result.tile.dtype:
        return [*ops, Cast(x=power, results=op.results, loc=op.loc)]
    return [*ops[:-1], replace(ops[-1], results=op.results)]


class _Uses:
    """What becomes of powers."""

    def __init__(self, function: Function, known: Mapping[Value, Operation]) -> None:
        self._known, self._users = known, find_users(function)
        self._rounded = find_rounded_values(function)

    def find(self, op: Elementwise) -> tuple[bool, bool]:
        """Whether nothing but such sums are made of a power, and sums or half floats."""
        dtype = op.result.tile.dtype
        if dtype != F32:
            return False, dtype.is_low_precision_float
        users = self._users.get(op.result, [])
        sums = [self._adds_around_maximum(user) for user in users]
        others = [user for user, is_sum in zip(users, sums) if not is_sum]
        is_rounded = all(self._rounds(user, op.result) for user in others)
        return bool(users) and not others, bool(others) and is_rounded

    def _rounds(self, user: Operation, value: Value) -> bool:
        """Whether half floats are made of what is made of it."""
        if isinstance(user, Cast):
            return not user.bitcast and user.dtype.is_low_precision_float
        is_passed = bool(user.results) and self._rounded.issuperset(user.results)
        return is_passed and value in find_passed(user)

    def _adds_around_maximum(self, user: Operation) -> bool:
        if isinstance(user, Mask):
            return all(map(self._adds_around_maximum, self._users.get(user.result, [])))
        return isinstance(user, Reduce) and find_peak(user, self._known) is not None
