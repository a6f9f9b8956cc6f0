"""Ten compiler bugs that were chosen after random programs had their last features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.fuzzing.injections import (
    READ_AGAIN,
    Injection,
    add_function_pass,
    add_pass,
    injections,
)
from tilesmith.dtypes import I8, U8
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.memory import Atomic, AtomicKind, Load, Store
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.traversal import Substitution, rewrite_function
from tilesmith.ir.types import Value

UNSIGNED = ("lt", "le", "gt", "ge")


def _renamed(old: str, new: str) -> Callable[[], None]:
    def rewrite(op: Operation) -> Operation:
        is_old = isinstance(op, Elementwise) and op.fn == old
        return replace(op, fn=new) if is_old else op

    return lambda: add_pass(rewrite)


def division_to_zero() -> None:
    """Integer divisions round towards zero."""
    _renamed("floordiv", "truncdiv")()


def remainder_to_zero() -> None:
    """Remainders have the sign of the dividend."""
    _renamed("mod", "fmod")()


def nearest_integer() -> None:
    """Floats are rounded to integers, not cut off."""

    def rewrite(op: Operation) -> Operation | list[Operation]:
        if not isinstance(op, Cast) or op.bitcast or not op.x.tile.dtype.is_float:
            return op
        if not op.result.tile.dtype.is_integer:
            return op
        near = Value(op.x.type)
        return [Elementwise(results=(near,), args=(op.x,), fn="round"), replace(op, x=near)]

    add_pass(rewrite)


def least_is_zero() -> None:
    """Minima start at zero."""
    right = ReduceKind.identity

    def wrong(kind: ReduceKind, dtype: Any) -> Any:
        return 0 if kind in (ReduceKind.MIN, ReduceKind.ARGMIN) else right(kind, dtype)

    ReduceKind.identity = wrong  # type: ignore[method-assign]


def narrow_sums() -> None:
    """Sums are made in the type of what is added."""
    right = ReduceKind.accumulator

    def wrong(kind: ReduceKind, source: Any, result: Any) -> Any:
        is_float_sum = kind is ReduceKind.SUM and source.is_float
        return source if is_float_sum else right(kind, source, result)

    ReduceKind.accumulator = wrong  # type: ignore[method-assign]


def crossed_carries() -> None:
    """The first two values that a loop carries change places if they have one type."""

    def rewrite(op: Operation) -> Operation:
        if not isinstance(op, Loop) or len(op.init) < 2:
            return op
        *others, last = op.body.ops
        assert isinstance(last, Yield)
        first, second, *rest = last.values
        if first.type != second.type:
            return op
        crossed = replace(last, values=(second, first, *rest))
        return replace(op, body=Region(op.body.args, (*others, crossed)))

    add_pass(rewrite)


def merged_loads() -> None:
    """What was loaded before is not loaded again, whatever was stored meanwhile."""

    def run(function: Function) -> Function:
        known = Substitution()

        def look(region: Region, seen: dict[Any, Value]) -> None:
            for op in region.ops:
                if isinstance(op, Load) and op.mask is None:
                    earlier = seen.setdefault((op.tensor, op.indices, op.result.type), op.result)
                    if earlier is not op.result:
                        known[op.result] = earlier
                for inner in op.regions():
                    look(inner, dict(seen))

        look(function.body, {})

        def rewrite(op: Operation) -> Operation | None:
            return None if isinstance(op, Load) and known(op.result) is not op.result else op

        return rewrite_function(function, rewrite, known)

    add_function_pass("merged_loads", run)


def xor_is_or() -> None:
    """Atomic exclusive ors are plain ones."""

    def rewrite(op: Operation) -> Operation:
        is_xor = isinstance(op, Atomic) and op.kind == AtomicKind.XOR
        return replace(op, kind=AtomicKind.OR.value) if is_xor else op

    add_pass(rewrite)


def signed_comparison() -> None:
    """Bytes above 127 are compared as if they were negative."""

    def rewrite(op: Operation) -> Operation | list[Operation]:
        if not isinstance(op, Elementwise) or op.fn not in UNSIGNED:
            return op
        if any(arg.tile.dtype != U8 for arg in op.args):
            return op
        signed = [Value(replace(arg.tile, dtype=I8)) for arg in op.args]
        casts = [Cast(results=(new,), x=old) for new, old in zip(signed, op.args)]
        return [*casts, replace(op, args=tuple(signed))]

    add_pass(rewrite)


def dead_store() -> None:
    """A store counts as overwritten by the next one to its tensor, which may have a mask."""

    def run(function: Function) -> Function:
        doomed: list[Operation] = []
        last: dict[Value, Store] = {}

        def look(op: Operation) -> Operation:
            if isinstance(op, Store):
                earlier = last.get(op.tensor)
                if earlier is not None and earlier.indices == op.indices:
                    doomed.append(earlier)
                last[op.tensor] = op
            return op

        rewrite_function(function, look)
        return rewrite_function(function, lambda op: None if op in doomed else op)

    add_function_pass("dead_store", run)


LATER_INJECTIONS: dict[str, Injection] = injections(
    (division_to_zero, "host", r"//"),
    (remainder_to_zero, "host", r"%"),
    (nearest_integer, "host", ""),
    (least_is_zero, "host", r"amin|argmin"),
    # Native code adds in fp32 whatever this says: only rows in parts, as GPUs have, show it.
    (narrow_sums, "interpret", r"torch\.(sum|mean)"),
    (crossed_carries, "host", r"\n {8,}for "),
    (merged_loads, "host", READ_AGAIN),
    (xor_is_or, "host", r"atomic_xor"),
    (signed_comparison, "host", r"uint8"),
    (dead_store, "host", r"(?s)\b(\w+)\[[^\n]*\] = .*\n +\1\[[^\n]*\] = |hl\.store"),
)
