"""``1 + erf(x)``, as in a Gaussian unit, by one exponential where half floats are made of it.

It is ``erfc(-x)``, and ``erfc(t)`` of a positive ``t`` is a power of two with a smooth exponent.
The library's ``erf`` has two cases, whose coefficients it selects lane by lane: 37 instructions for
an element of such an epilogue, so 18. The tail loses no digits: nothing near -1 is added to 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.backends.triton.emission.idle_lanes import find_users
from tilesmith.backends.triton.emission.rounded_quotients import find_rounded_values
from tilesmith.dtypes import F32
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import definitions, rewrite_function, walk_function
from tilesmith.ir.types import Value

EXPONENT = (
    -1.6279127597808838, -0.9183467626571655, -0.1488511711359024, 0.029136573895812035,
    -0.0018478094134479761, -0.0008063946152105927, 0.00023067965230438858, -1.9271157725597732e-05,
)  # fmt: skip
"""``log2(erfc(t)) / t`` in powers of ``t``, fitted to [0, 4] (errors of 7e-8 and, beyond 2.5, of
3e-4 of the value). The last one is negative: beyond 4 the power falls on, to 0 at infinity."""
SHORT_FUNCTIONS = ("erf", "exp2")
"""Which a product's epilogue has for next to nothing, where half floats are made of them.

8192x4096x16384 and gelu on an H200, ms: one loop over tiles of 128x256 1.63, two programs with
tiles of 128x128 side by side 1.71 (with the library's erf 1.90, 1.79); 8192x1024x4096 0.118, 0.125.
"""
Definitions = Mapping[Value, Operation]


def use_tails(function: Function) -> Function:
    """The function with such sums by exponentials."""
    known = definitions(function.body)
    if not any(isinstance(op, Elementwise) and op.fn == "erf" for op in known.values()):
        return function
    vanishing = _find_vanishing(function)

    def rewrite(op: Operation) -> Operation | list[Operation]:
        x = _find_argument(op, known) if vanishing.issuperset(op.results) else None
        return op if x is None else _write(op, x)

    return rewrite_function(function, rewrite)


def has_long_functions(function: Function) -> bool:
    """Whether an element of some tile takes a transcendental function of many instructions."""
    ops = [op for op in walk_function(function) if isinstance(op, Elementwise)]
    return any(op.function.is_transcendental and op.fn not in SHORT_FUNCTIONS for op in ops)


def _find_vanishing(function: Function) -> set[Value]:
    """Values of which nothing but half floats is made, by arithmetic."""
    found, users = set(find_rounded_values(function)), find_users(function)
    # Uses come after what they use.
    for value in reversed(list(definitions(function.body))):
        uses = users.get(value, [])
        are_arithmetic = all(isinstance(op, Elementwise) for op in uses)
        if uses and are_arithmetic and all(found.issuperset(op.results) for op in uses):
            found.add(value)
    return found


def _find_argument(op: Operation, known: Definitions) -> Value | None:
    """The ``x`` of ``erf(x) + 1`` in fp32; None for anything else."""
    if not isinstance(op, Elementwise) or op.fn != "add" or op.result.tile.dtype != F32:
        return None
    for one, other in (op.args, op.args[::-1]):
        erf, constant = known.get(one), known.get(other)
        is_one = isinstance(constant, Full) and constant.value == 1
        if is_one and isinstance(erf, Elementwise) and erf.fn == "erf":
            return erf.args[0]
    return None


def _write(op: Operation, x: Value) -> list[Operation]:
    write, kind = TileWriter(lambda: op.loc), x.tile
    t, exponent = write.apply("abs", x), write.full(kind, EXPONENT[-1])
    for coefficient in EXPONENT[-2::-1]:
        exponent = write.apply("fma", exponent, t, write.full(kind, coefficient))
    tail = write.apply("exp2", write.apply("mul", exponent, t))
    rest = write.apply("sub", write.full(kind, 2.0), tail)
    is_tail = write.apply("lt", x, write.full(kind, 0.0))
    write.insert(
        Elementwise(args=(is_tail, tail, rest), fn="where", results=op.results, loc=op.loc)
    )
    return [*write.close_region().ops]
