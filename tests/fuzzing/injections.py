"""Ten known compiler bugs, put in one at a time to see how soon random programs notice.

Each function changes the compiler of this process for good, so it belongs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import tilesmith.compiler.specialization as compiler
from tilesmith.backends.cpu.llvm import lanes as memory_access
from tilesmith.backends.cpu.planning.steps import StepOrder
from tilesmith.compiler.lowering import rewrite
from tilesmith.dtypes import I32, I64
from tilesmith.frontend.functions import promotion
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.traversal import Substitution, rewrite_function
from tilesmith.ir.types import Value

Rewrite = Callable[[Operation], "Operation | list[Operation] | None"]
READ_AGAIN = r"= (?:hl\.load\()?(?:out|same)\d"
"""Loads of what may have been stored before."""


@dataclass(frozen=True)
class Injection:
    """A bug.

    Attributes:
        apply: puts it in.
        mode: which ways of running programs can see it: "host" or "interpret".
        needs: a pattern without which the text of a program has nothing that the bug could change.
            Such programs count as having noticed nothing, and are not run.
    """

    apply: Callable[[], None]
    mode: str
    description: str
    needs: str = ""


def add_pass(rewrite: Rewrite) -> None:
    """Rewrite every op, after all other passes."""
    add_function_pass("wrong_on_purpose", rewrite_all(rewrite))


def add_function_pass(name: str, run: Callable[[Function], Function]) -> None:
    """Run a pass after all others."""
    stage = compiler.STANDARD
    added = replace(rewrite(run, "It is wrong on purpose."), name=name)
    compiler.STANDARD = replace(stage, passes=(*stage.passes, added))


def rewrite_all(rewrite: Rewrite) -> Callable[[Function], Function]:
    """A pass of one rule."""
    return lambda function: rewrite_function(function, rewrite)


def wrong_mask_value() -> None:
    """Lanes beyond a tile's end are reset to one more than they should."""

    def rewrite(op: Operation) -> Operation:
        if isinstance(op, Mask) and not isinstance(op.fill, bool):
            return replace(op, fill=1 if not op.fill else 0)
        return op

    add_function_pass("wrong_mask_value", rewrite_all(rewrite))


def dropped_mask() -> None:
    """Lanes beyond a tile's end are not reset at all."""

    def run(function: Function) -> Function:
        substitution = Substitution()

        def rewrite(op: Operation) -> Operation | None:
            if isinstance(op, Mask):
                substitution[op.result] = op.x
                return None
            return op

        return rewrite_function(function, rewrite, substitution)

    add_function_pass("dropped_mask", run)


def wrong_stride() -> None:
    """Native code steps along the first dimension as if it were the last."""
    right = memory_access.place_of

    def wrong(b: Any, parts: list[tuple[Any, Any]], width: int) -> Any:
        if len(parts) > 1:
            parts = [(parts[0][0], parts[-1][1]), *parts[1:]]
        return right(b, parts, width)

    _replace_everywhere("place_of", right, wrong)


def _replace_everywhere(name: str, right: object, wrong: object) -> None:
    """Also where a module has imported the function by name."""
    import sys

    for module in list(sys.modules.values()):
        if module.__name__.startswith("tilesmith.") and getattr(module, name, None) is right:
            setattr(module, name, wrong)


def short_loop() -> None:
    """Sequential loops end one index early."""

    def rewrite(op: Operation) -> Operation | list[Operation]:
        if not isinstance(op, Loop):
            return op
        end = op.ends[0]
        one = Value(end.type)
        less = Value(end.type)
        return [
            Full(results=(one,), value=1),
            Elementwise(results=(less,), args=(end, one), fn="sub"),
            replace(op, ends=(less, *op.ends[1:])),
        ]

    add_function_pass("short_loop", rewrite_all(rewrite))


def wrong_identity() -> None:
    """Maxima start at zero."""
    right = ReduceKind.identity

    def wrong(kind: ReduceKind, dtype: Any) -> Any:
        return 0 if kind in (ReduceKind.MAX, ReduceKind.ARGMAX) else right(kind, dtype)

    ReduceKind.identity = wrong  # type: ignore[method-assign]


def forgotten_carry() -> None:
    """The last value a loop carries stays what it was."""

    def rewrite(op: Operation) -> Operation:
        if not isinstance(op, Loop) or not op.init:
            return op
        *others, last = op.body.ops
        assert isinstance(last, Yield)
        values = (*last.values[:-1], op.body.args[-1])
        body = Region(op.body.args, (*others, replace(last, values=values)))
        return replace(op, body=body)

    add_function_pass("forgotten_carry", rewrite_all(rewrite))


def swapped_operands() -> None:
    """Subtractions and comparisons have their operands the other way round."""

    def rewrite(op: Operation) -> Operation:
        if isinstance(op, Elementwise) and op.fn in ("sub", "lt", "ge"):
            is_scalar = not op.args[0].tile.rank
            return op if is_scalar else replace(op, args=op.args[::-1])
        return op

    add_function_pass("swapped_operands", rewrite_all(rewrite))


def missing_widening() -> None:
    """Arithmetic in 64 bits is done in 32."""

    def rewrite(op: Operation) -> Operation | list[Operation]:
        if not isinstance(op, Elementwise) or op.result.tile.dtype != I64:
            return op
        narrow_type = replace(op.result.tile, dtype=I32)
        wide, narrow = Value(op.result.type), Value(narrow_type)
        return [
            replace(op, results=(wide,)),
            Cast(results=(narrow,), x=wide),
            Cast(results=op.results, x=narrow),
        ]

    add_function_pass("missing_widening", rewrite_all(rewrite))


def missing_order() -> None:
    """Native code takes loads for independent of earlier stores."""

    def wrong(self: StepOrder, old: Any, new: Any) -> int:
        return 0

    StepOrder._order = wrong


def wrong_promotion() -> None:
    """The first tensor's type wins in arithmetic."""
    right_promote, right_infer = promotion._promote, promotion._infer

    def first(descriptors: Any, otherwise: Any) -> Any:
        tensors = [d for d in descriptors if d[0] == "tensor"]
        return tensors[0][1] if len(tensors) > 1 else otherwise

    def promote(descriptors: Any) -> Any:
        return first(descriptors, right_promote(descriptors))

    def infer(name: str, descriptors: Any) -> Any:
        right = right_infer(name, descriptors)
        return first(descriptors, right) if name in ("add", "sub", "mul") else right

    promotion._promote = promote  # type: ignore[assignment]
    promotion._infer = infer  # type: ignore[assignment]


def injections(*listed: tuple[Callable[[], None], str, str]) -> dict[str, Injection]:
    """By name: functions with the mode that can see them, and what they need."""
    return {
        function.__name__: Injection(function, mode, (function.__doc__ or "").strip(" ."), needs)
        for function, mode, needs in listed
    }


INJECTIONS = injections(
    (wrong_mask_value, "interpret", ""),
    (dropped_mask, "interpret", ""),
    (wrong_stride, "host", ""),
    (short_loop, "host", r"\n {8,}for "),
    (wrong_identity, "host", ""),
    (forgotten_carry, "host", r"\n {8,}for "),
    (swapped_operands, "host", ""),
    (missing_widening, "host", ""),
    (missing_order, "host", READ_AGAIN),
    (wrong_promotion, "host", ""),
)
