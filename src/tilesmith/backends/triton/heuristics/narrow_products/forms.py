"""Which products convert an operand once, before them, and which share their sums; and when.

Milliseconds and microseconds are of an H200, bf16.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from typing_extensions import override

from tilesmith.analysis.converted_operands.site import find_converted_operand
from tilesmith.backends.triton.heuristics.shared_rows.parts import RowForms
from tilesmith.schedule.rules import TargetedKernel

AHEAD_FORMS = (CONVERTED_AHEAD, CONVERTED_PARTS) = ("converted_ahead", "converted_parts")
SUM_PARTS = "sum_parts"
LEAST_ROWS = 48
"""Of the other operand, for an operand to be converted before: each tile of rows converts it again.

1024 rows, 4-bit weights 3584x8192, us: 98 converted before, 222 in the loop at best; 16384 rows,
16-bit integers 1024x1280: 70, 88 at best; but one row, 4-bit weights 8192x8192: 85, 59.
"""
SPLIT_TILE = 128
LEAST_SPLIT = 1024
"""Elements along the sum: shorter ones are added sooner than programs meet."""


class OperandForms(RowForms):
    """Forms of products, and when they are defaults."""

    @override
    def row_forms(self, kernel: TargetedKernel) -> Sequence[str]:
        forms = [*super().row_forms(kernel)]
        if len(kernel.facts.matmuls) != 1 or not _has_units(kernel):
            return forms
        is_converted = find_converted_operand(kernel.outline.function) is not None
        if is_converted:
            forms.append(CONVERTED_AHEAD)
        if _has_few_tiles(kernel):
            forms += [CONVERTED_PARTS, SUM_PARTS] if is_converted else [SUM_PARTS]
        return forms

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        if name not in (*AHEAD_FORMS, SUM_PARTS):
            return super().may_be_first_form(name, kernel)
        (fact,) = kernel.facts.matmuls
        is_shared = _has_few_tiles(kernel)
        if name == SUM_PARTS or min(fact.m.extent_or(0), fact.n.extent_or(0)) < LEAST_ROWS:
            return False
        return is_shared == (name == CONVERTED_PARTS)

    @override
    def least_gain(self, name: str) -> float:
        """The time that is predicted for conversions in the loop is too short."""
        return 0.0 if name in AHEAD_FORMS else super().least_gain(name)


def _has_units(kernel: TargetedKernel) -> bool:
    return kernel.target.kind == "cuda" and kernel.facts.matmuls[0].uses_tensor_cores


def _has_few_tiles(kernel: TargetedKernel) -> bool:
    """Whether tiles of a usual size leave most multiprocessors idle, for long."""
    (fact,) = kernel.facts.matmuls
    tiles = [-(-axis.extent_or(1 << 20) // SPLIT_TILE) for axis in (fact.m, fact.n)]
    is_long = fact.k.extent_or(0) >= LEAST_SPLIT
    return is_long and 2 * prod(tiles) <= kernel.target.num_sms
