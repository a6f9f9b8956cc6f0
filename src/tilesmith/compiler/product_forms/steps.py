"""Steps that give a function another form: as a config names it, or as a target wants it."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.compiler.lowering import Lowering, known
from tilesmith.passes.eliminate_dead_code import eliminate_dead_code
from tilesmith.passes.product_forms.halves import multiply_halves
from tilesmith.passes.product_forms.named import split_as
from tilesmith.schedule.config import STRUCTURE


def split_rows(state: Lowering) -> Lowering:
    """As the config's ``structure`` says; the function as it is where that is not certain."""
    name = state.config.get(STRUCTURE)
    split = split_as(state.function, name) if name else None
    return state if split is None else replace(state, function=split)


def take_pairs_apart(state: Lowering) -> Lowering:
    """Two products for each over joined pairs, where that is faster whatever the config."""
    spec = known(state.spec)
    most, extent = spec.rules.most_rows_by_pairs, spec.kernel.outline.extent
    if not most:
        return state
    made = multiply_halves(state.function, lambda dim: (extent(dim) or most + 1) <= most)
    return state if made is None else replace(state, function=eliminate_dead_code(made))
