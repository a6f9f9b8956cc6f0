"""Programs of one grid that wait for each other in groups."""

from __future__ import annotations

import pytest
import torch

from tests.interpreted import run_function
from tests.interpreter.run_text import build
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.exc import OutOfBoundsAccess, RaceDetected
from tilesmith.interpreter.frame import prepare_function
from tilesmith.interpreter.observers import Sampling
from tilesmith.interpreter.run import run_prepared
from tilesmith.numerics.reference_setup import needs_all_programs

WIDTH, COLUMNS, ROWS = 10, 3, 7
BLOCKS = {"columns": 4, "rows": 2}
GROUPS = 4
"""Of programs that have the same rows; the last block of rows, and that of columns, is partial."""

PART = """
    %p = load(%x, none, [%r, %c]) : f32[rows, columns]
    %sums = reduce(%p) {axis=1, kind="sum"} : f32[rows]
    %number = elementwise(%column, %width_of_block) {fn="floordiv"} : i64[]
    store(%parts, %sums, none, [%i, %number])
"""
TOTAL = """
    %k = arange() : i64[3]
    %k_row = expand_dims(%k) {axes=[0]} : i64[1, 3]
    %all = load(%parts, none, [%r, %k_row]) : f32[rows, 3]
    %total = reduce(%all) {axis=1, kind="sum"} : f32[rows]
"""
SHIFTED = """
    %totals = expand_dims(%total) {axes=[1]} : f32[rows, 1]
    %wide = broadcast(%totals) : f32[rows, columns]
    %result = elementwise(%p, %wide) {fn="add"} : f32[rows, columns]
    store(%out, %result, none, [%r, %c])
"""


def in_grid(*bodies: str, arrivals: int = COLUMNS, place: str = "%group") -> str:
    """A grid over tiles of ``x``, its bodies with barriers of the programs of the same rows."""
    constants, barriers = "", [""]
    for number in range(1, len(bodies)):
        constants += f"  %arrivals_{number} = full() {{value={number * arrivals}}} : i32[]\n"
        barriers.append(f"    group_barrier(%counts, {place}, %arrivals_{number})\n")
    inside = "".join(before + body for before, body in zip(barriers, bodies))
    return f"""
  %height = full() {{value={ROWS}}} : i64[]
  %width = full() {{value={WIDTH}}} : i64[]
  %height_of_block = block_size() {{block="rows"}} : i64[]
  %width_of_block = block_size() {{block="columns"}} : i64[]
{constants}
  grid([%zero, %zero], [%width, %height]) {{blocks=["columns", "rows"]}}
      (%column: i64[], %row: i64[]) {{
    %group = elementwise(%row, %height_of_block) {{fn="floordiv"}} : i64[]
    %i = tile_index(%row) {{block="rows"}} : i64[rows]
    %j = tile_index(%column) {{block="columns"}} : i64[columns]
    %r = expand_dims(%i) {{axes=[1]}} : i64[rows, 1]
    %c = expand_dims(%j) {{axes=[0]}} : i64[1, columns]
{inside}
  }}"""


def arguments() -> dict[str, torch.Tensor]:
    x = torch.arange(ROWS * WIDTH, dtype=torch.float32).reshape(ROWS, WIDTH)
    return {
        "x": x,
        "parts": torch.full((ROWS, COLUMNS), torch.nan),
        "out": torch.zeros(ROWS, WIDTH),
        "counts": torch.zeros(GROUPS + 1, dtype=torch.int32),
    }


@pytest.mark.parametrize("races", [False, True])
def test_each_program_sees_what_those_of_its_group_stored(races: bool):
    given = arguments()
    run_function(build(in_grid(PART, TOTAL + SHIFTED), given, BLOCKS), given, BLOCKS, races=races)
    torch.testing.assert_close(given["out"], given["x"] + given["x"].sum(1, keepdim=True))
    assert given["counts"].tolist() == [*[COLUMNS] * GROUPS, 0]


@pytest.mark.parametrize("races", [False, True])
def test_a_second_barrier_over_the_same_counts_waits_for_twice_the_number(races: bool):
    again = """
    %square = elementwise(%total, %total) {fn="mul"} : f32[rows]
    store(%squares, %square, none, [%i, %number])
"""
    last = """
    %k2 = arange() : i64[3]
    %k2_row = expand_dims(%k2) {axes=[0]} : i64[1, 3]
    %both = load(%squares, none, [%r, %k2_row]) : f32[rows, 3]
    %total2 = reduce(%both) {axis=1, kind="sum"} : f32[rows]
""" + SHIFTED.replace("%total)", "%total2)")
    given = {**arguments(), "squares": torch.full((ROWS, COLUMNS), torch.nan)}
    body = in_grid(PART, TOTAL + again, last)
    run_function(build(body, given, BLOCKS), given, BLOCKS, races=races)
    squares = given["x"].sum(1, keepdim=True) ** 2
    torch.testing.assert_close(given["out"], given["x"] + COLUMNS * squares)
    assert given["counts"].tolist() == [*[2 * COLUMNS] * GROUPS, 0]


def test_scalars_and_lengths_of_tiles_stay_those_of_their_program():
    """After the barrier a program stores the number it computed before, to its own tile only."""
    body = """
    %mine = cast(%number) : f32[]
    %one_mine = expand_dims(%mine) {axes=[0, 1]} : f32[1, 1]
    %t = broadcast(%one_mine) : f32[rows, columns]
    store(%out, %t, none, [%r, %c])
"""
    given = arguments()
    run_function(build(in_grid(PART, body), given, BLOCKS), given, BLOCKS, races=True)
    expected = (torch.arange(WIDTH) // BLOCKS["columns"]).float().expand(ROWS, WIDTH)
    assert torch.equal(given["out"], expected)


def test_without_the_barrier_it_is_a_race():
    given = arguments()
    function = build(in_grid(PART + TOTAL + SHIFTED), given, BLOCKS)
    with pytest.raises(RaceDetected, match="parts"):
        run_function(function, given, BLOCKS, races=True)


@pytest.mark.parametrize("body", ["", "    program_barrier()\n"])
def test_programs_still_race_after_a_barrier(body: str):
    clash = """
    %k = arange() : i64[3]
    %k_row = expand_dims(%k) {axes=[0]} : i64[1, 3]
    %same = load(%x, none, [%r, %k_row]) : f32[rows, 3]
    store(%parts, %same, none, [%r, %k_row])
"""
    given = arguments()
    function = build(in_grid(PART, body + clash), given, BLOCKS)
    with pytest.raises(RaceDetected, match="parts"):
        run_function(function, given, BLOCKS, races=True)


@pytest.mark.parametrize(
    ("arrivals", "outcome"),
    [(COLUMNS + 1, "wait for ever"), (COLUMNS - 1, "not wait for all")],
)
def test_a_wrong_number_of_arrivals_is_found(arrivals: int, outcome: str):
    given = arguments()
    function = build(in_grid(PART, TOTAL + SHIFTED, arrivals=arrivals), given, BLOCKS)
    with pytest.raises(InternalError, match=rf"{arrivals} arrivals at counts\[0\].*{outcome}"):
        run_function(function, given, BLOCKS)


def test_a_second_barrier_given_the_number_of_the_first_is_found():
    given = arguments()
    text = in_grid(PART, TOTAL, SHIFTED).replace("%arrivals_2)", "%arrivals_1)")
    with pytest.raises(InternalError, match="and 6 come: it would not wait for all"):
        run_function(build(text, given, BLOCKS), given, BLOCKS)


def test_counts_that_are_not_zero_at_the_start_are_found():
    given = {**arguments(), "counts": torch.tensor([0, 0, 1, 0, 0], dtype=torch.int32)}
    function = build(in_grid(PART, TOTAL + SHIFTED), given, BLOCKS)
    with pytest.raises(InternalError, match=r"counts\[2\], and 4 come"):
        run_function(function, given, BLOCKS)


def test_a_place_outside_the_counts_is_found():
    given = arguments()
    function = build(in_grid(PART, TOTAL + SHIFTED, place="%row"), given, BLOCKS)
    with pytest.raises(OutOfBoundsAccess, match="counts"):
        run_function(function, given, BLOCKS)


def test_the_last_count_is_no_place():
    given = {**arguments(), "counts": torch.zeros(GROUPS, dtype=torch.int32)}
    function = build(in_grid(PART, TOTAL + SHIFTED), given, BLOCKS)
    with pytest.raises(OutOfBoundsAccess, match="counts"):
        run_function(function, given, BLOCKS)


def test_such_a_grid_is_never_sampled():
    given = arguments()
    function = build(in_grid(PART, TOTAL + SHIFTED), given, BLOCKS)
    assert needs_all_programs(function)
    for sampling in (Sampling(3, seed=1), Sampling(None, chosen=[[5]])):
        given = arguments()
        run_prepared(prepare_function(function), given, BLOCKS, sampling=sampling)
        torch.testing.assert_close(given["out"], given["x"] + given["x"].sum(1, keepdim=True))
        assert sampling.is_complete
        assert sampling.mask_of(given["counts"]).tolist() == [*[True] * GROUPS, False]
