"""Ten more compiler bugs: a third list, chosen after random programs were widened once more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tests.fuzzing.injections import READ_AGAIN, Injection, add_pass, injections
from tilesmith.backends.cpu.dots.plans import Packing
from tilesmith.backends.cpu.emission import context, elements
from tilesmith.backends.cpu.llvm.registers import LType, index, number
from tilesmith.backends.cpu.math import casts
from tilesmith.backends.cpu.positions.accumulation import Accumulation
from tilesmith.dtypes import BF16, ElementKind
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import If, Loop
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.types import Value
from tilesmith.passes import accesses, expressions


def stored_past_mask() -> None:
    """A store with a mask leaves known what was stored before it."""
    right = accesses._forget

    def wrong(given: Iterable[Any], stored: list[Any]) -> None:
        masked = (x for x in given if not (isinstance(x.op, Store) and x.op.mask is not None))
        right(masked, stored)

    accesses._forget = wrong


def hoisted_load() -> None:
    """Loads leave loops that store to their tensor."""
    right = expressions._is_movable

    def wrong(op: Operation, defined_by: Any) -> bool:
        return isinstance(op, Load) or right(op, defined_by)

    expressions._is_movable = wrong


def ones_for_none() -> None:
    """Lanes that a load's own mask leaves out hold 1."""

    def rewrite(op: Operation) -> Operation | list[Operation]:
        if not isinstance(op, Load) or op.mask is None:
            return op
        if op.mask.tile.shape != op.result.tile.shape:
            return op
        loaded, one = Value(op.result.type), Value(op.result.type)
        dtype = op.result.tile.dtype
        value = 1.0 if dtype.is_float else True if dtype.is_bool else 1
        return [
            replace(op, results=(loaded,)),
            Full(results=(one,), value=value),
            Elementwise(results=op.results, args=(op.mask, loaded, one), fn="where"),
        ]

    add_pass(rewrite)


def skipped_arm() -> None:
    """Branches that have nothing else to do do nothing at all."""

    def rewrite(op: Operation) -> Operation | list[Operation]:
        if not isinstance(op, If) or len(op.otherwise.ops) > 1:
            return op
        return replace(op, then=op.otherwise)

    add_pass(rewrite)


def at_least_once() -> None:
    """Sequential loops run at least once."""

    def rewrite(op: Operation) -> Operation | list[Operation]:
        if not isinstance(op, Loop):
            return op
        one, least, end = (Value(op.ends[0].type) for _ in range(3))
        return [
            Full(results=(one,), value=1),
            Elementwise(results=(least,), args=(op.begins[0], one), fn="add"),
            Elementwise(results=(end,), args=(op.ends[0], least), fn="maximum"),
            replace(op, ends=(end, *op.ends[1:])),
        ]

    add_pass(rewrite)


def cut_bf16() -> None:
    """Native code cuts floats to bf16, and does not round them."""
    casts._ROUND[BF16] = lambda x: (x.bits() & -0x10000).floats()


def last_of_equals() -> None:
    """Of equal elements the last position wins in native code."""
    right = Accumulation._is_better

    def wrong(self: Accumulation, builder: Any, x: Any, y: Any) -> Any:
        worse = right(self, builder, y, x)
        return builder.binary("xor", worse, number("i1", 1, worse.lanes))

    Accumulation._is_better = wrong  # type: ignore[method-assign]


def unsigned_minimum() -> None:
    """Atomic minima of native code take negative numbers for large ones."""
    right = elements._emit_atomic

    def wrong(builder: Any, item: Any, *others: Any) -> Any:
        dtype = item.access.tensor.type.dtype
        is_signed = item.kind == "min" and dtype.kind is ElementKind.SIGNED
        return right(builder, replace(item, kind="umin") if is_signed else item, *others)

    elements._emit_atomic = wrong


def odd_step() -> None:
    """Products that take several steps along k at once leave out those that are over."""
    right = Packing.steps

    def wrong(self: Packing, builder: Any, depth: Any) -> Any:
        if self.group > 1 and not self.fills_vectors:
            return builder.binary("sdiv", depth, index(self.group))
        return right(self, builder, depth)

    Packing.steps = wrong  # type: ignore[method-assign]


def lost_remainder() -> None:
    """Threads get equal numbers of programs, and what is over runs nowhere."""
    right = context._take_range

    def wrong(builder: Any, body: str, arguments: Any, count: Any) -> None:
        threads = builder.index_of(builder.call("omp_get_num_threads", LType("i32")))
        share = builder.binary("sdiv", count, threads)
        right(builder, body, arguments, builder.multiply(share, threads))

    context._take_range = wrong


LAST_INJECTIONS: dict[str, Injection] = injections(
    (stored_past_mask, "host", READ_AGAIN),
    (hoisted_load, "host", READ_AGAIN),
    (ones_for_none, "host", r"hl\.load\("),
    (skipped_arm, "host", r"\n +if "),
    (at_least_once, "host", r"\n {8,}for "),
    (cut_bf16, "host", r"bfloat16"),
    (last_of_equals, "host", r"argmax|argmin"),
    (unsigned_minimum, "host", r"atomic_min"),
    (odd_step, "host", r"hl\.dot\(|addmm| @ "),
    (lost_remainder, "host", ""),
)
