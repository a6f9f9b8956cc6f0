"""Block sizes for the interpreter: whole tensors, but no value beyond the memory bound."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.compiler.interpreter_tiles import MAX_TILE_ELEMENTS, whole_tile_sizes
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import TileType


@helion.kernel
def plane(x):
    out = torch.empty_like(x)
    for t, u in hl.tile(x.size()):
        out[t, u] = x[t, u] + 1
    return out


@helion.kernel
def outer_product_sums(x, y):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        acc = hl.zeros([t])
        for u in hl.tile(y.size(0)):
            acc = acc + (x[t][:, None] * y[u][None, :]).sum(1)
        out[t] = acc
    return out


def largest_value(function, sizes: dict[str, int]) -> int:
    """Elements of the largest tile value."""
    largest = 0
    for op in walk_function(function):
        for value in op.results:
            if isinstance(value.type, TileType):
                elements = 1
                for dim in value.type.shape:
                    for factor in dim.factors:
                        elements *= factor if isinstance(factor, int) else sizes[factor]
                largest = max(largest, elements)
    return largest


def test_tiles_cover_the_tensor() -> None:
    function = plane.bind((torch.zeros(5, 100),)).function
    assert sorted(whole_tile_sizes(function).values()) == [8, 128]


def test_empty_and_unit_extents() -> None:
    for shape in ((0, 5), (5, 0), (1, 1)):
        sizes = whole_tile_sizes(plane.bind((torch.zeros(shape),)).function)
        assert all(size >= 1 for size in sizes.values())


def test_values_stay_within_the_bound() -> None:
    x, y = torch.empty(1 << 16, device="meta"), torch.empty(1 << 15, device="meta")
    function = outer_product_sums.bind((x, y)).function
    sizes = whole_tile_sizes(function)
    assert largest_value(function, sizes) <= MAX_TILE_ELEMENTS
    # Not needlessly small: one more doubling would break the bound.
    assert 2 * largest_value(function, sizes) > MAX_TILE_ELEMENTS


def test_runtime_sizes_count_by_what_they_were_when_traced() -> None:
    @helion.kernel(static_shapes=False)
    def rows(x):
        out = x.new_empty([x.size(0)])
        for t in hl.tile(x.size(0)):
            out[t] = x[t, :].sum(1)
        return out

    function = rows.bind((torch.empty(64, 1 << 20, device="meta"),)).function
    (size,) = whole_tile_sizes(function).values()
    assert size * (1 << 20) <= MAX_TILE_ELEMENTS
