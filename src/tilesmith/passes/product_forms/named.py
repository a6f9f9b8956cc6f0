"""Forms of a function: those that a config names, and the one that some targets always want."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.ir.function import Function
from tilesmith.ir.types import Dim
from tilesmith.passes.converted_operands import convert_ahead
from tilesmith.passes.eliminate_dead_code import eliminate_dead_code
from tilesmith.passes.merged_groups.merge import merge_groups
from tilesmith.passes.merged_groups.whole_tiles import merge_whole_tiles
from tilesmith.passes.product_forms.bits import convert_halves_by_bits
from tilesmith.passes.product_forms.halves import multiply_halves
from tilesmith.passes.row_launches import reduce_in_own_launch
from tilesmith.passes.split_rows import Form, split_rows
from tilesmith.passes.spread_loops import spread_loops
from tilesmith.passes.summed_parts import sum_in_parts

Pass = Callable[[Function], "Function | None"]


def _multiply_pairs(function: Function) -> Function | None:
    made = multiply_halves(function)
    return None if made is None else convert_halves_by_bits(made)


def _then_sum(make: Pass) -> Pass:
    """A form of a product whose sums are shared, too."""
    return lambda function: None if (made := make(function)) is None else sum_in_parts(made)


_OF_PRODUCTS: dict[str, Pass] = {
    "converted_ahead": convert_ahead,
    "converted_parts": _then_sum(convert_ahead),
    "merged_groups": merge_groups,
    "merged_roles": merge_whole_tiles,
    "pair_products": _multiply_pairs,
    "pair_parts": _then_sum(_multiply_pairs),
    "spread_loops": spread_loops,
    "sum_parts": sum_in_parts,
    "two_launches": reduce_in_own_launch,
}


def split_as(function: Function, name: str) -> Function | None:
    """The same computation in the form of that name; None where that is not certain."""
    if (make := _OF_PRODUCTS.get(name)) is not None:
        return make(function)
    is_form = name in {form.value for form in Form}  # there are structures of backends, too
    return split_rows(function, Form(name)) if is_form else None


def take_pairs_apart(
    function: Function, most: int, extent: Callable[[Dim], int | None]
) -> Function:
    """With two products for each over joined pairs, where the other operand has few rows."""
    made = multiply_halves(function, lambda dim: (extent(dim) or most + 1) <= most)
    return function if made is None else eliminate_dead_code(made)
