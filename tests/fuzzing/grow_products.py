"""Grows products of matrices that are loaded for them."""

from __future__ import annotations

import torch

from tests.fuzzing.choices import pick
from tests.fuzzing.grow_statements import MAX_ELEMENTS
from tests.fuzzing.pointwise import EIGHT_BITS
from tests.fuzzing.program import Grown
from tests.fuzzing.scope import Scope, Workshop
from tests.fuzzing.statements import Load, Position, Product

PRODUCT_TYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.float8_e4m3fn,
)  # fmt: skip


def grow_product(shop: Workshop, scope: Scope) -> Grown:
    """Two loads and their product over a whole dimension."""
    loads = grow_matrices(shop, scope, pick(shop.choices, list(shop.sizes)))
    if not loads:
        return []
    left, right = (load.result for load in loads)
    form = "dot" if left.dtype in EIGHT_BITS else pick(shop.choices, ("dot", "mm"))
    dtype = torch.float32 if form == "dot" else left.dtype
    if left.dtype == torch.int8:
        form, dtype = "dot", torch.int32
    result = scope.add(shop.value(dtype, (left.axes[0], right.axes[1])))
    return [*loads, Product(result, form, left, right, is_added=False)]


def grow_matrices(shop: Workshop, scope: Scope, inner: str) -> list[Load]:
    """Loads of two matrices whose product is over the axis ``inner``."""
    inner_size = scope.tiles.get(inner, inner)
    ends = [axis for axis in (*scope.tiles, *shop.sizes) if axis != inner]
    row = pick(shop.choices, ends)
    others = [axis for axis in ends if axis != row]
    if not others or not shop.sizes[inner_size]:
        return []
    column = pick(shop.choices, others)
    dtype = torch.float32 if shop.is_smooth else pick(shop.choices, PRODUCT_TYPES)
    loads: list[Load] = []
    for axes in ((row, inner), (inner, column)):
        if shop.elements(scope, axes) > MAX_ELEMENTS:
            return []
        dims = tuple(scope.tiles.get(axis, axis) for axis in axes)
        spec = shop.new_input(dims, dtype)
        positions = tuple(
            Position("tile", axis) if axis in scope.tiles else Position("full") for axis in axes
        )
        value = shop.value(dtype, axes)
        loads.append(Load(value, spec.name, positions))
        if dtype not in EIGHT_BITS:
            scope.add(value)
    return loads
