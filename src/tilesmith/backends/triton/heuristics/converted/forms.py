"""Products whose operand is converted once, before them, instead of in every program."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from typing_extensions import override

from tilesmith.analysis.converted_operands.site import find_converted_operand
from tilesmith.backends.triton.heuristics.shared_rows.parts import RowForms
from tilesmith.schedule.rules import TargetedKernel

CONVERTED_AHEAD, SUM_PARTS = "converted_ahead", "sum_parts"
LEAST_ROWS = 512
"""Of the other operand. Each tile of rows converts all of the matrix again."""

SPLIT_TILE = 128
LEAST_SPLIT = 1024


class OperandForms(RowForms):
    """The form, and when it is a default."""

    @override
    def row_forms(self, kernel: TargetedKernel) -> Sequence[str]:
        forms = [*super().row_forms(kernel)]
        if len(kernel.facts.matmuls) != 1 or not _has_units(kernel):
            return forms
        (fact,) = kernel.facts.matmuls
        if find_converted_operand(kernel.outline.function) is not None:
            forms.append(CONVERTED_AHEAD)
        tiles = [-(-axis.extent_or(1 << 20) // SPLIT_TILE) for axis in (fact.m, fact.n)]
        has_few = prod(tiles) <= kernel.target.num_sms
        if has_few and fact.k.extent_or(0) >= LEAST_SPLIT:
            forms.append(SUM_PARTS)
        return forms

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        if name == SUM_PARTS:
            return False
        if name != CONVERTED_AHEAD:
            return super().may_be_first_form(name, kernel)
        (fact,) = kernel.facts.matmuls
        return min(fact.m.extent_or(0), fact.n.extent_or(0)) >= LEAST_ROWS

    @override
    def least_gain(self, name: str) -> float:
        """The time that is predicted for conversions in the loop is too short."""
        return 0.0 if name == CONVERTED_AHEAD else super().least_gain(name)


def _has_units(kernel: TargetedKernel) -> bool:
    return kernel.target.kind == "cuda" and kernel.facts.matmuls[0].uses_tensor_cores
