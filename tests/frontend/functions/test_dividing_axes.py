"""Reshapes of shapes with tile axes: what may be merged and split, and in which order."""

from __future__ import annotations

import pytest

from tilesmith.frontend.functions.shape import divide_axes
from tilesmith.ir.types import Dim, Shape


def shape(text: str) -> Shape:
    """``"t*3 4"`` as dimensions."""
    parts = [[int(f) if f.isdigit() else f for f in dim.split("*")] for dim in text.split()]
    return tuple(Dim(tuple(f for f in factors if f != 1)) for factors in parts)


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        ("t 15", "t 3 5", "t 3 5"),
        ("t 15", "t 3 -1", "t 3 5"),
        ("t 4 6", "t 8 3", "t 8 3"),
        ("t 4 6", "-1 3", "t*8 3"),
        ("t 3", "t*3", "t*3"),
        ("3 t", "t*3", "3*t"),
        ("t u", "-1", "t*u"),
        ("t*6", "t 2 3", "t 2 3"),
        ("t*6 4", "-1 8", "t*3 8"),
        ("t 1 6", "1 t 6 1", "1 t 6 1"),
        ("2 t 3", "t*6", "2*t*3"),
        ("t 0", "t 0 1", "t 0 1"),
    ],
)
def test_factors_keep_their_order(before: str, wanted: str, after: str) -> None:
    sizes = [None if dim == "-1" else shape(dim)[0] for dim in wanted.split()]
    assert divide_axes(shape(before), sizes) == shape(after)


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        ("t 6", "2 t 3"),
        ("t u", "u t"),
        ("t 6", "t 4"),
        ("t 6", "t 2 2"),
        ("t 6", "t 4 -1"),
        ("t 6", "6 -1"),
        ("t 0", "t 3"),
        ("t", "t 2"),
    ],
)
def test_tile_axes_are_neither_split_nor_reordered(before: str, wanted: str) -> None:
    sizes = [None if dim == "-1" else shape(dim)[0] for dim in wanted.split()]
    assert divide_axes(shape(before), sizes) is None
