"""Products whose operand is converted once, before them, instead of in every program."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from tilesmith.analysis.converted_operands.site import find_converted_operand
from tilesmith.backends.triton.heuristics.shared_rows.parts import RowForms
from tilesmith.schedule.rules import TargetedKernel

CONVERTED_AHEAD = "converted_ahead"
LEAST_ROWS = 512
"""Of the other operand. Each tile of rows converts all of the matrix again."""


class OperandForms(RowForms):
    """The form, and when it is a default."""

    @override
    def row_forms(self, kernel: TargetedKernel) -> Sequence[str]:
        forms = super().row_forms(kernel)
        is_found = len(kernel.facts.matmuls) == 1 and _has_units(kernel)
        if not is_found or find_converted_operand(kernel.outline.function) is None:
            return forms
        return [*forms, CONVERTED_AHEAD]

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
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
