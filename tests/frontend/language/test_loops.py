"""Loops of device code as IR: bounds, blocks and steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith.language as hl
from tests.frontend.traced import lines_of, trace_of
from tilesmith import exc


def tiles(x):
    for t, u in hl.tile(x.shape, block_size=[None, 4]):
        x[t, u] = 0


def test_a_tuned_axis_has_a_slot_and_a_fixed_one_its_size() -> None:
    lines = lines_of(tiles, torch.zeros(5, 8))
    assert "block t {slot=0, extent=5}" in lines
    assert "block u {fixed=4, extent=8}" in lines


def one_at_a_time(x):
    for t in hl.tile(x.size(0), block_size=1):
        x[t] = t.begin + t.block_size


def test_tiles_of_one_are_plain_indices() -> None:
    lines = lines_of(one_at_a_time, torch.zeros(5))
    assert not any(line.startswith("block") for line in lines)
    assert 'grid([%0], [%1]) {blocks=[""]} (%t: i32[]) {' in lines


def strided(x):
    for i in hl.grid(1, 10, step=3):
        x[i] = 0


def test_a_grid_counts_its_steps_and_programs_multiply_them() -> None:
    text = "\n".join(lines_of(strided, torch.zeros(10)))
    assert 'fn="floordiv"' in text
    assert 'fn="mul"' in text


def shared(x):
    block = hl.register_block_size(64)
    for t in hl.tile(x.size(0), block_size=block):
        for u in hl.tile(x.size(1)):
            x[t, u] = block


def test_registered_block_sizes_have_the_first_slots() -> None:
    blocks = trace_of(shared, torch.zeros(5, 8)).function.blocks
    assert [(block.name, block.slot) for block in blocks] == [("block", 0), ("u", 1)]


def wide(x, n):
    for i in hl.grid(n):
        x[i % 4] = 0


@pytest.mark.parametrize(("bound", "dtype"), [(4, "i32"), (2**31, "i64")])
def test_positions_are_as_wide_as_the_bound(bound: int, dtype: str) -> None:
    lines = lines_of(wide, torch.zeros(4), bound)
    (grid,) = [line for line in lines if line.startswith("grid")]
    assert f"(%i: {dtype}[])" in grid


def backwards(x):
    for t in hl.tile(5, 2):
        x[t] = 0


def odd_block(x):
    for t in hl.tile(5, block_size=3):
        x[t] = 0


def mixed_bounds(x):
    for t in hl.tile([0, 0], 5):
        x[t] = 0


def tile_of_tile(x):
    for t in hl.tile(5):
        for u in hl.tile(t):
            x[u] = 0


def upwards_by_a_step_down(x):
    for i in hl.grid(0, 5, step=-1):
        x[i] = 0


def without_progress(x):
    for i in hl.grid(0, 5, step=0):
        x[i] = 0


def nested_use(x):
    block = hl.register_block_size(64)
    for t in hl.tile(5, block_size=block):
        for u in hl.tile(5, block_size=block):
            x[t] = x[u].sum()


@pytest.mark.parametrize(
    ("kernel", "error"),
    [
        (backwards, exc.InvalidTileRange),
        (odd_block, exc.InvalidBlockSize),
        (mixed_bounds, exc.IncorrectTileUsage),
        (tile_of_tile, exc.TileOfTile),
        (upwards_by_a_step_down, exc.InvalidTileRange),
        (without_progress, exc.IncorrectTileUsage),
        (nested_use, exc.NestedDeviceLoopsConflict),
    ],
)
def test_wrong_ranges_are_errors_at_the_loop(
    kernel: Callable[..., Any], error: type[exc.BaseError]
) -> None:
    with pytest.raises(error) as caught:
        trace_of(kernel, torch.zeros(5))
    assert caught.value.loc is not None
    assert caught.value.loc.function == kernel.__name__
    assert "for " in str(caught.value)
