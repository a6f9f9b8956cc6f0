"""Products by weights of which a byte holds two: forms that multiply halves, and their tiles."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from tilesmith.backends.triton.heuristics.narrow_products.seeds import (
    SUM_PARTS,
    OperandForms,
    converted_seeds,
)
from tilesmith.backends.triton.heuristics.pair_tiles.seeds import first_product, shares_sums
from tilesmith.ir.ops.rearrangement import Join
from tilesmith.ir.traversal import walk
from tilesmith.schedule.rules import TargetedKernel

PAIR_FORMS = (PAIR_PRODUCTS, PAIR_PARTS) = ("pair_products", "pair_parts")


class PairForms(OperandForms):
    """Two products of halves where one has operands that are joined."""

    @override
    def row_forms(self, kernel: TargetedKernel) -> Sequence[str]:
        forms = super().row_forms(kernel)
        facts = kernel.facts.matmuls
        has_units = kernel.target.kind == "cuda" and all(f.uses_tensor_cores for f in facts)
        body = kernel.outline.function.body
        if len(facts) != 1 or not has_units or not any(isinstance(op, Join) for op in walk(body)):
            return forms
        return [*forms, *(PAIR_FORMS if SUM_PARTS in forms else (PAIR_PRODUCTS,))]

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        """For few rows, of which sums are shared or not."""
        if name not in PAIR_FORMS:
            return super().may_be_first_form(name, kernel)
        kernel = first_product(kernel)
        return bool(converted_seeds(kernel)) and shares_sums(kernel) == (name == PAIR_PARTS)

    @override
    def form_rank(self, name: str) -> int:
        return -1 if name in PAIR_FORMS else super().form_rank(name)

    @override
    def least_gain(self, name: str) -> float:
        return 0.0 if name in PAIR_FORMS else super().least_gain(name)
