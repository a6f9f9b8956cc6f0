"""Views undone after elementwise functions leave the functions; what moves elements stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.ir.traversal import walk

VIEWS = {"reshape", "permute", "select", "join"}
Tile = torch.Tensor


def rescaled(x: Tile, row: Tile, column: Tile) -> Tile:
    low, high = hl.split(x.reshape(x.size(0), 2, 8).permute(0, 2, 1))
    both = hl.join((low * row[:, None]).exp(), (high * row[:, None]).exp())
    return both.permute(0, 2, 1).reshape(x.size(0), 16)


def rounded(x: Tile, row: Tile, column: Tile) -> Tile:
    low, high = hl.split(x.reshape(x.size(0), 8, 2))
    both = hl.join(low.to(torch.bfloat16), high.to(torch.bfloat16))
    return both.reshape(x.size(0), 16).to(torch.float32)


def turned(x: Tile, row: Tile, column: Tile) -> Tile:
    return (torch.relu(x.permute(1, 0)) + 2.0).permute(1, 0)


def swapped(x: Tile, row: Tile, column: Tile) -> Tile:
    low, high = hl.split(x.reshape(x.size(0), 8, 2))
    return hl.join(high * row[:, None], low * row[:, None]).reshape(x.size(0), 16)


def unlike(x: Tile, row: Tile, column: Tile) -> Tile:
    low, high = hl.split(x.reshape(x.size(0), 8, 2))
    return hl.join(low.exp(), high.sin()).reshape(x.size(0), 16)


def other_factors(x: Tile, row: Tile, column: Tile) -> Tile:
    low, high = hl.split(x.reshape(x.size(0), 8, 2))
    return hl.join(low * 0.0, high * -0.0).reshape(x.size(0), 16)


def along_the_cut(x: Tile, row: Tile, column: Tile) -> Tile:
    cut = x.reshape(x.size(0), 2, 8) * column[None, None, :]
    return cut.reshape(x.size(0), 16)


@tilesmith.kernel(static_shapes=True)
def apply(x: Tile, row: Tile, column: Tile, function: Callable[..., Tile]) -> Tile:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0), block_size=4):
        out[tile, :] = function(x[tile, :], row[tile], column[:])
    return out


def expected(function: Callable[..., Tile], x: Tile, row: Tile, column: Tile) -> Tile:
    """Torch's own functions in place of the language's two."""
    names = function.__globals__
    kept, names["hl"] = names["hl"], Halves
    try:
        return function(x, row, column)
    finally:
        names["hl"] = kept


class Halves:
    """``hl.split`` and ``hl.join`` of whole tensors."""

    split = staticmethod(lambda x: x.unbind(-1))
    join = staticmethod(lambda low, high: torch.stack((low, high), -1))


def arguments(rows: int = 7) -> tuple[Tile, Tile, Tile]:
    torch.manual_seed(0)
    return torch.randn(rows, 16), torch.randn(rows), torch.randn(8)


@pytest.mark.parametrize("function", [rescaled, rounded, turned])
def test_functions_of_the_tile_as_it_was_are_left(function):
    bound = apply.bind((*arguments(), function))
    assert not VIEWS & {op.name for op in walk(bound.function.body)}


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (swapped, "join"),
        (unlike, "join"),
        (other_factors, "join"),
        (along_the_cut, "reshape"),
    ],
)
def test_what_moves_elements_or_differs_stays(function, kept):
    bound = apply.bind((*arguments(), function))
    assert kept in {op.name for op in walk(bound.function.body)}


@pytest.mark.parametrize(
    "function", [rescaled, rounded, turned, swapped, unlike, other_factors, along_the_cut]
)
def test_results_are_torchs(function):
    args = arguments()
    found, wanted = apply(*args, function), expected(function, *args)
    torch.testing.assert_close(found, wanted, rtol=2e-6, atol=2e-6)
    assert torch.equal(torch.signbit(found), torch.signbit(wanted))


def reused(x: Tile, row: Tile, column: Tile) -> Tile:
    y = x.permute(1, 0)
    for _ in range(40):
        y = y * (1.0 - y)
    return y.permute(1, 0)


def test_values_that_are_read_twice_are_looked_at_once():
    """Two to the power of forty looks would not end."""
    bound = apply.bind((*arguments(), reused))
    assert not VIEWS & {op.name for op in walk(bound.function.body)}
