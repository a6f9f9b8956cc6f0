"""Which atomics depend on the order of programs: what is shown safe is, what meets is found."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.analysis.run_order import AtomicHazard, SharedUpdate, find_shared_updates

ROWS, COLUMNS = 20, 12


def by_number(x: torch.Tensor, out: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(out, [tile.id], x[tile, :].sum())


def by_row_and_column(x: torch.Tensor, out: torch.Tensor) -> None:
    for rows, columns in hl.tile(x.size()):
        place = rows.index[:, None] * x.size(1) + columns.index[None, :]
        hl.atomic_add(out, [place], x[rows, columns])


def by_row_and_loop(x: torch.Tensor, out: torch.Tensor) -> None:
    for row in hl.grid(x.size(0)):
        for columns in hl.tile(x.size(1)):
            hl.atomic_add(out, [row * x.size(1) + columns.index], x[row, columns])


def by_tiles_of_tiles(x: torch.Tensor, out: torch.Tensor) -> None:
    for outer in hl.tile(x.size(0), block_size=8):
        for inner in hl.tile(outer.begin, outer.end):
            hl.atomic_add(out, [inner], x[inner, 0])


def by_tiles_of_any_tiles(x: torch.Tensor, out: torch.Tensor) -> None:
    for outer in hl.tile(x.size(0)):
        for inner in hl.tile(outer.begin, outer.end):
            hl.atomic_add(out, [inner], x[inner, 0])


def by_row_and_range(x: torch.Tensor, out: torch.Tensor) -> None:
    for row in hl.grid(x.size(0)):
        hl.atomic_add(out, [row * 4 + hl.arange(4)], hl.full([4], 1.0))


def backwards(x: torch.Tensor, out: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(out, [out.size(0) - 1 - tile.index], x[tile, 0])


def shifted(x: torch.Tensor, out: torch.Tensor, by: int) -> None:
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(out, [tile.index + by], x[tile, 0])


def even_and_odd(x: torch.Tensor, out: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(out, [2 * tile.index], x[tile, 0])
        hl.atomic_add(out, [2 * tile.index + 1], x[tile, 1])


def twice(x: torch.Tensor, out: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(out, [tile], x[tile, 0])
        hl.atomic_add(out, [tile], x[tile, 1])


def all_in_one(x: torch.Tensor, out: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(out, [tile.index * 0], x[tile, 0])


def overlapping(x: torch.Tensor, out: torch.Tensor) -> None:
    for row in hl.grid(x.size(0)):
        hl.atomic_add(out, [row * 3 + hl.arange(4)], hl.full([4], 1.0))


def over_the_end(x: torch.Tensor, out: torch.Tensor) -> None:
    for outer in hl.tile(x.size(0), block_size=8):
        for inner in hl.tile(outer.begin, outer.begin + 9):
            hl.atomic_add(out, [inner], hl.full([inner], 1.0))


def numbers_of_inner_tiles(x: torch.Tensor, out: torch.Tensor) -> None:
    for outer in hl.tile(x.size(0), block_size=2):
        for inner in hl.tile(outer.begin, outer.end):
            hl.atomic_add(out, [inner.id], x[inner, 0].sum())


def overlapping_rows(x: torch.Tensor, out: torch.Tensor) -> None:
    for rows, columns in hl.tile(x.size()):
        place = rows.index[:, None] * (x.size(1) - 1) + columns.index[None, :]
        hl.atomic_add(out, [place], x[rows, columns])


def by_label(x: torch.Tensor, out: torch.Tensor, labels: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(out, [labels[tile]], x[tile, 0])


def neighbours(x: torch.Tensor, out: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(out, [tile.index], x[tile, 0])
        hl.atomic_add(out, [tile.index + 1], x[tile, 0])


def exchanged(x: torch.Tensor, out: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        hl.atomic_xchg(out, [tile.index % 2], x[tile, 0])


def tickets(x: torch.Tensor, out: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        hl.store(out, [hl.atomic_add(out, [0], 1)], x[tile, 0].sum().to(out.dtype))


def waiting(x: torch.Tensor, out: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, 0].to(out.dtype) + hl.atomic_add(out, [900], 0)


def updates_of(
    function: Any, *more: Any, dtype: torch.dtype = torch.float32, **settings: Any
) -> tuple[SharedUpdate, ...]:
    """Those found with tiles of four, for a table of ones."""
    x, out = torch.ones(ROWS, COLUMNS), torch.zeros(1000, dtype=dtype)
    bound = helion.kernel(function, **settings).bind((x, out, *more))
    return find_shared_updates(bound.function, {b.name: 4 for b in bound.function.blocks})


def most_updates(function: Any, *more: Any) -> float:
    """How often the element is updated that is updated most often, by running it."""
    x, out = torch.ones(ROWS, COLUMNS), torch.zeros(1000)
    helion.kernel(function, backend="reference")(x, out, *more)
    return out.max().item()


LABELS = torch.arange(ROWS) % 3


@pytest.mark.parametrize(
    ("function", "more"),
    [
        (by_row_and_column, ()),
        (by_row_and_loop, ()),
        (by_row_and_range, ()),
        (by_tiles_of_tiles, ()),
        (by_tiles_of_any_tiles, ()),
        (backwards, ()),
        (shifted, (7,)),
        (even_and_odd, ()),
    ],
)
def test_elements_of_one_lane_each_are_safe(function: Any, more: tuple[Any, ...]) -> None:
    assert updates_of(function, *more) == ()
    assert most_updates(function, *more) == 1


def test_programs_that_write_by_their_number_are_safe() -> None:
    assert updates_of(by_number) == ()


def test_two_updates_by_the_same_lane_are_safe() -> None:
    assert updates_of(twice) == ()


@pytest.mark.parametrize(
    ("function", "more", "meeting"),
    [
        (all_in_one, (), "lanes of a program, and programs,"),
        (overlapping, (), "programs that differ along row"),
        (over_the_end, (), "programs that differ along outer"),
        (numbers_of_inner_tiles, (), "programs that differ along outer"),
        (overlapping_rows, (), "programs that differ along rows and columns"),
        (by_label, (LABELS,), "lanes of a program, and programs,"),
        (neighbours, (), "this atomic and that of test_run_order.py:"),
    ],
)
def test_elements_in_which_several_meet_are_found(
    function: Any, more: tuple[Any, ...], meeting: str
) -> None:
    first, *_ = updates_of(function, *more)
    assert (first.hazard, first.tensor) == (AtomicHazard.SUM, "out")
    assert first.meeting.startswith(meeting)
    assert "test_run_order.py" in str(first)
    assert most_updates(function, *more) > 1


def test_runtime_sizes_prove_nothing_about_rows() -> None:
    assert updates_of(by_row_and_column, static_shapes=False)
    assert updates_of(shifted, 7, static_shapes=False) == ()
    assert updates_of(by_tiles_of_any_tiles, static_shapes=False) == ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_exchanges_depend_on_the_order(dtype: torch.dtype) -> None:
    assert [update.hazard for update in updates_of(exchanged, dtype=dtype)] == [
        AtomicHazard.EXCHANGE
    ]


def test_previous_values_do_unless_nothing_is_added() -> None:
    assert [update.hazard for update in updates_of(tickets, dtype=torch.int32)] == [
        AtomicHazard.RETURNS_OLD
    ]
    assert updates_of(waiting, dtype=torch.int32) == ()
    assert updates_of(by_label, LABELS, dtype=torch.int32) == ()


def any_digits(
    x: torch.Tensor, out: torch.Tensor, a: hl.constexpr, b: hl.constexpr, c: hl.constexpr
) -> None:
    for rows, columns in hl.tile(x.size()):
        place = rows.index[:, None] * a + columns.index[None, :] * b + columns.begin * c
        hl.atomic_add(out, [place + 500], x[rows, columns])


@settings(max_examples=40, deadline=None)
@given(st.integers(-14, 24), st.integers(-22, 22), st.integers(-2, 2))
def test_no_sum_is_called_safe_where_lanes_or_programs_meet(a: int, b: int, c: int) -> None:
    lanes = product(range(ROWS), range(COLUMNS))
    places = [a * i + b * j + c * (j - j % 4) for i, j in lanes]
    if not updates_of(any_digits, a, b, c):
        assert len(set(places)) == len(places)
    elif c == 0 and (abs(a) >= COLUMNS * abs(b) > 0 or abs(b) >= ROWS * abs(a) > 0):
        pytest.fail("digits are told apart")
