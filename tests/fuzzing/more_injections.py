"""Ten more compiler bugs: what random programs were widened for."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from tests.fuzzing.injections import Injection, add_pass, injections
from tilesmith.dtypes import BOOL, I8, U8
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.reduction import ReduceKind, Scan
from tilesmith.ir.types import Value
from tilesmith.jit import call_keys


def ignored_store_mask() -> None:
    """Stores take place where their own mask is false."""
    add_pass(lambda op: replace(op, mask=None) if isinstance(op, Store) else op)


def ignored_load_mask() -> None:
    """Loads give elements where their own mask is false."""
    add_pass(lambda op: replace(op, mask=None) if isinstance(op, Load) else op)


def forward_scan() -> None:
    """Scans from the end run from the beginning."""
    add_pass(lambda op: replace(op, reverse=False) if isinstance(op, Scan) else op)


def wrong_atomic() -> None:
    """Atomic maxima are sums."""

    def rewrite(op: Operation) -> Operation:
        is_max = isinstance(op, Atomic) and op.kind == "max"
        return replace(op, kind="add") if is_max else op

    add_pass(rewrite)


def dropped_accumulator() -> None:
    """Products are not added to what was there."""
    add_pass(lambda op: replace(op, acc=None) if isinstance(op, Dot) else op)


def loop_from_zero() -> None:
    """Sequential loops begin at index 0, wherever they should."""

    def rewrite(op: Operation) -> Operation | list[Operation]:
        if not isinstance(op, Loop):
            return op
        zero = Value(op.begins[0].type)
        return [
            Full(results=(zero,), value=0),
            replace(op, begins=(zero, *op.begins[1:])),
        ]

    add_pass(rewrite)


def signed_bytes() -> None:
    """Bytes above 127 become negative where they are converted."""

    def rewrite(op: Operation) -> Operation | list[Operation]:
        if not isinstance(op, Cast) or op.x.tile.dtype != U8:
            return op
        signed = Value(replace(op.x.tile, dtype=I8))
        return [Cast(results=(signed,), x=op.x), replace(op, x=signed)]

    add_pass(rewrite)


def stale_sizes() -> None:
    """Code for a size of 1 is taken for any other."""

    def wrong(shape: tuple[int, ...], strides: tuple[int, ...]) -> Hashable:
        return len(shape)

    call_keys.dynamic_form = wrong


def wrong_factor() -> None:
    """Lanes masked out of a product hold 0."""
    right = ReduceKind.identity

    def wrong(kind: ReduceKind, dtype: Any) -> Any:
        return 0 if kind is ReduceKind.PROD else right(kind, dtype)

    ReduceKind.identity = wrong  # type: ignore[method-assign]


def lost_nan() -> None:
    """The larger of a NaN and a number is the number."""

    def rewrite(op: Operation) -> Operation | list[Operation]:
        if not isinstance(op, Elementwise) or op.fn != "maximum":
            return op
        first, second = op.args
        if not op.result.tile.dtype.is_float:
            return op
        larger = Value(replace(op.result.tile, dtype=BOOL))
        return [
            Elementwise(results=(larger,), args=(first, second), fn="gt"),
            replace(op, args=(larger, first, second), fn="where"),
        ]

    add_pass(rewrite)


MORE_INJECTIONS: dict[str, Injection] = injections(
    (ignored_store_mask, "host", r"extra_mask="),
    (ignored_load_mask, "host", r"extra_mask="),
    (forward_scan, "host", r"reverse=True"),
    (wrong_atomic, "host", r"atomic_max"),
    (dropped_accumulator, "host", r"hl\.dot\(|addmm| @ "),
    (loop_from_zero, "host", r"\n {8,}for "),
    (signed_bytes, "host", r"uint8"),
    (stale_sizes, "host", r"': 1\b.*static_shapes=False"),
    (wrong_factor, "host", r"torch\.prod|cumprod"),
    (lost_nan, "host", r"maximum|amax|relu|clamp"),
)
