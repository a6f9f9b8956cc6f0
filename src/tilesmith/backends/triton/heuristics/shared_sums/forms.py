"""Gradients of a product in one launch: the sum over all rows is shared by several programs."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from tilesmith.backends.triton.heuristics.groups.seeds import SpreadForms
from tilesmith.backends.triton.heuristics.narrow_products.seeds import (
    SUM_PARTS,
    has_few_tiles,
    has_units,
)
from tilesmith.backends.triton.heuristics.several_grids import each_grid
from tilesmith.schedule.rules import TargetedKernel


class SharedSumForms(SpreadForms):
    """One sum of several loops in parts, when that is a default."""

    @override
    def row_forms(self, kernel: TargetedKernel) -> Sequence[str]:
        forms = super().row_forms(kernel)
        if len(kernel.outline.grids) < 2 or kernel.outline.has_barrier:
            return forms
        grids = each_grid(kernel)
        are_products = all(len(grid.facts.matmuls) == 1 and has_units(grid) for grid in grids)
        return [*forms, SUM_PARTS] if are_products and any(map(has_few_tiles, grids)) else forms

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        if name != SUM_PARTS or len(kernel.outline.grids) < 2:
            return super().may_be_first_form(name, kernel)
        return True
