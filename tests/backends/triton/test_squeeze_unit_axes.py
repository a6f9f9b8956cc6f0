"""Axes of blocks of size 1 go, and the function still means the same."""

from __future__ import annotations

import pytest
import torch

from tests.backends.triton.kernels import parse, rows
from tests.backends.triton.test_against_reference import batched, reduce_rows, shuffle
from tests.interpreted import run_function
from tilesmith.ir.function import Function
from tilesmith.ir.printer import print_function
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import TileType
from tilesmith.ir.verifier import verify_function
from tilesmith.passes.squeeze_unit_axes import squeeze_unit_axes

MEAN = """
%s = reduce(%x_tile) {axis=1, kind="sum"} : f32[tile_m]
%c = expand_dims(%s) {axes=[1]} : f32[tile_m, 1]
%cb = broadcast(%c) : f32[tile_m, 7]
%r = elementwise(%x_tile, %cb) {fn="sub"} : f32[tile_m, 7]
"""


def check(function: Function, units: list[str], sizes: dict[str, int], *args: torch.Tensor) -> None:
    """The squeezed function is valid, has lost the axes and computes the same."""
    squeezed = squeeze_unit_axes(function, units)
    verify_function(squeezed)
    for op in walk_function(squeezed):
        for value in (*op.results, *(arg for region in op.regions() for arg in region.args)):
            if isinstance(value.type, TileType):
                symbols = {symbol for dim in value.type.shape for symbol in dim.symbols}
                assert not symbols & set(units), print_function(squeezed)
    names = [parameter.value.name for parameter in function.parameters]
    before, after = ({n: a.clone() for n, a in zip(names, args)} for _ in range(2))
    run_function(function, before, sizes)
    run_function(squeezed, after, sizes)
    for name in names:
        torch.testing.assert_close(after[name], before[name])


def test_rows_become_vectors():
    function = parse(rows("f32", 5, 7, MEAN))
    check(function, ["tile_m"], {"tile_m": 1}, torch.randn(5, 7), torch.zeros(5, 7))
    text = print_function(squeeze_unit_axes(function, ["tile_m"]))
    assert "%x_tile = load" in text
    assert ": f32[7]" in text
    assert "tile_index" not in text


@pytest.mark.parametrize("kind", ["sum", "argmax"])
def test_reductions_along_the_other_axis_are_renumbered(kind):
    result = "i64" if kind == "argmax" else "f32"
    out = torch.zeros(9, dtype=torch.int64 if kind == "argmax" else torch.float32)
    function = parse(reduce_rows("f32", result, kind, 13))
    check(function, ["tile_m"], {"tile_m": 1}, torch.randn(9, 13), out)


@pytest.mark.parametrize("axis", [0, 1])
def test_scans_are_renumbered_or_gone(axis):
    scan = f'%r = scan(%x_tile) {{axis={axis}, kind="sum"}} : f32[tile_m, 7]'
    function = parse(rows("f32", 5, 7, scan))
    check(function, ["tile_m"], {"tile_m": 1}, torch.randn(5, 7), torch.zeros(5, 7))
    text = print_function(squeeze_unit_axes(function, ["tile_m"]))
    assert ("scan" in text) == (axis == 1)


def test_views_lose_the_axis():
    args = (torch.randn(5, 8), torch.zeros(5, 8), torch.zeros(40))
    check(parse(shuffle(5)), ["tile_m"], {"tile_m": 1}, *args)


@pytest.mark.parametrize(
    "units",
    [
        ["tile_b"],
        ["tile_m"],
        ["tile_n"],
        ["tile_k"],
        ["tile_b", "tile_m"],
        ["tile_b", "tile_m", "tile_n", "tile_k"],
    ],
    ids=str,
)
def test_products_keep_their_matrices(units):
    sizes = {name: 1 if name in units else 4 for name in ("tile_b", "tile_m", "tile_n", "tile_k")}
    args = (torch.randn(3, 5, 6), torch.randn(3, 6, 7), torch.zeros(3, 5, 7))
    check(parse(batched(3, 5, 7, 6, "f32", "f32")), units, sizes, *args)


def test_nothing_changes_without_unit_blocks():
    function = parse(rows("f32", 5, 7, MEAN))
    assert squeeze_unit_axes(function, []) is function
