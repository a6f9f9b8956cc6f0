"""The race detector: what two programs may do to one element and what they may not."""

from __future__ import annotations

import pytest
import torch

from tests.interpreter.run_text import over_tiles, run_text
from tilesmith.exc import RaceDetected

TWO_STORES = over_tiles(
    """
    %v = full() {value=1.0} : f32[]
    store(%out, %v, none, [%zero])""",
    8,
)


def test_stores_of_two_programs_to_one_element_race():
    with pytest.raises(RaceDetected) as caught:
        run_text(TWO_STORES, {"out": torch.zeros(3)}, {"m": 4}, races=True)
    assert "race on `out` at index 0:" in str(caught.value)
    assert "the program at (0) stores to it and the program at (4) stores to it" in str(
        caught.value
    )


def test_one_program_may_store_again():
    run_text(TWO_STORES, {"out": torch.zeros(3)}, {"m": 8}, races=True)


def test_races_are_looked_for_only_when_asked():
    run_text(TWO_STORES, {"out": torch.zeros(3)}, {"m": 4})


NEIGHBOUR = over_tiles(
    """
    %eight = full() {value=8} : i64[m]
    %by = full() {value=BY} : i64[m]
    %j = elementwise(%i, %by) {fn="add"} : i64[m]
    %k = elementwise(%j, %eight) {fn="mod"} : i64[m]
    %v = load(%x, none, [%k]) : f32[m]
    store(%x, %v, none, [%i])""",
    8,
)


@pytest.mark.parametrize("by", [1, 4, 7])
def test_reading_what_another_program_writes_races(by: int):
    with pytest.raises(RaceDetected):
        run_text(NEIGHBOUR.replace("BY", str(by)), {"x": torch.zeros(8)}, {"m": 4}, races=True)


def test_reading_what_the_program_itself_writes_is_fine():
    run_text(NEIGHBOUR.replace("BY", "0"), {"x": torch.zeros(8)}, {"m": 4}, races=True)


def test_writing_what_another_program_has_read_races():
    """Program 0 only reads element 4, program 4 then writes it: any other order would differ."""
    body = over_tiles(
        """
    %last = full() {value=4} : i64[]
    %v = load(%x, none, [%last]) : f32[]
    %is_last = elementwise(%begin, %last) {fn="eq"} : bool[]
    store(%x, %v, %is_last, [%last])""",
        8,
    )
    with pytest.raises(RaceDetected, match="loads it and the program at \\(4\\) stores to it"):
        run_text(body, {"x": torch.zeros(8)}, {"m": 4}, races=True)


def test_atomics_do_not_race_with_each_other():
    body = over_tiles(
        """
    %v = full() {value=1.0} : f32[]
    %old = atomic(%out, %v, none, [%zero]) {kind="add"} : f32[]""",
        8,
    )
    out = torch.zeros(1)
    run_text(body, {"out": out}, {"m": 2}, races=True)
    assert out.item() == 4.0


@pytest.mark.parametrize("plain", ["load", "store"])
def test_an_atomic_races_with_a_plain_access(plain: str):
    access = {
        "load": "program_barrier()\n    %w = load(%out, none, [%zero]) : f32[]",
        "store": "store(%out, %v, none, [%zero])",
    }[plain]
    body = over_tiles(
        f"""
    %v = full() {{value=1.0}} : f32[]
    %old = atomic(%out, %v, none, [%zero]) {{kind="add"}} : f32[]
    {access}""",
        8,
    )
    with pytest.raises(RaceDetected, match="updates it"):
        run_text(body, {"out": torch.zeros(1)}, {"m": 4}, races=True)


@pytest.mark.parametrize("order", ["relaxed", "acq_rel"])
def test_an_acquiring_atomic_orders_what_follows_it(order: str):
    body = over_tiles(
        f"""
    %v = load(%x, none, [%i]) : f32[m]
    store(%part, %v, none, [%i])
    %n = full() {{value=1}} : i32[]
    %before = atomic(%count, %n, none, [%zero]) {{kind="add", order="{order}"}} : i32[]
    %last = full() {{value=1}} : i32[]
    %is_last = elementwise(%before, %last) {{fn="eq"}} : bool[]
    %all = arange() : i64[8]
    %p = load(%part, %is_last, [%all]) : f32[8]
    %s = reduce(%p) {{axis=0, kind="sum"}} : f32[]
    store(%out, %s, %is_last, [%zero])""",
        8,
    )
    arguments = {
        "x": torch.arange(8.0),
        "part": torch.zeros(8),
        "count": torch.zeros(1, dtype=torch.int32),
        "out": torch.zeros(1),
    }
    if order == "relaxed":
        with pytest.raises(RaceDetected):
            run_text(body, arguments, {"m": 4}, races=True)
    else:
        run_text(body, arguments, {"m": 4}, races=True)
        assert arguments["out"].item() == 28.0


READ_BACK = """
    %v = load(%x, none, [%i]) : f32[m]
    store(%y, %v, none, [%i])
    BETWEEN
    %w = load(%y, none, [%WHERE]) : f32[m]
    store(%out, %w, none, [%i])"""


@pytest.mark.parametrize("where", ["i", "back"])
def test_a_load_of_what_the_program_stored_needs_a_barrier(where: str):
    back = """%last = full() {value=7} : i64[m]
    %back = elementwise(%last, %i) {fn="sub"} : i64[m]"""
    arguments = {name: torch.arange(8.0) for name in ("x", "y", "out")}

    def read_back(between: str) -> str:
        text = READ_BACK.replace("BETWEEN", f"{back}\n    {between}").replace("WHERE", where)
        return over_tiles(text, 8)

    with pytest.raises(RaceDetected, match="writes it, and loads it with no barrier in between"):
        run_text(read_back(""), arguments, {"m": 8}, races=True)
    run_text(read_back("program_barrier()"), arguments, {"m": 8}, races=True)


def test_a_store_of_the_iteration_before_needs_a_barrier():
    """In a loop the barrier may stand before the load, for the iteration before."""
    loop = """
    %four = full() {value=4} : i64[]
    loop([%zero], [%four], [%one], []) {blocks=[""]} (%k: i64[]) {
      BARRIER
      %a = load(%out, none, [%k]) : f32[]
      %next = elementwise(%k, %one) {fn="add"} : i64[]
      store(%out, %a, none, [%next])
    }"""
    body = over_tiles(loop.replace("BARRIER", "program_barrier()"), 8)
    run_text(body, {"out": torch.zeros(8)}, {"m": 8}, races=True)
    body = over_tiles(loop.replace("BARRIER", ""), 8)
    with pytest.raises(RaceDetected, match="no barrier in between"):
        run_text(body, {"out": torch.zeros(8)}, {"m": 8}, races=True)


def two_grids(between: str) -> str:
    return f"""
  %end = full() {{value=8}} : i64[]
  grid([%zero], [%end]) {{blocks=["m"]}} (%b: i64[]) {{
    %i = tile_index(%b) {{block="m"}} : i64[m]
    %v = full() {{value=1.0}} : f32[m]
    store(%x, %v, none, [%i])
  }}
  {between}
  grid([%zero], [%end]) {{blocks=["m"]}} (%c: i64[]) {{
    %j = tile_index(%c) {{block="m"}} : i64[m]
    %w = load(%x, none, [%j]) : f32[m]
    store(%out, %w, none, [%j])
  }}"""


def test_grids_without_a_barrier_between_them_race():
    arguments = {"x": torch.zeros(8), "out": torch.zeros(8)}
    with pytest.raises(RaceDetected):
        run_text(two_grids(""), arguments, {"m": 4}, races=True)


def test_a_barrier_between_grids_orders_them():
    arguments = {"x": torch.zeros(8), "out": torch.zeros(8)}
    run_text(two_grids("program_barrier()"), arguments, {"m": 4}, races=True)
    assert arguments["out"].tolist() == [1.0] * 8


def test_a_barrier_inside_a_program_orders_nothing_between_programs():
    body = over_tiles(
        """
    %v = full() {value=1.0} : f32[]
    store(%out, %v, none, [%zero])
    program_barrier()""",
        8,
    )
    with pytest.raises(RaceDetected):
        run_text(body, {"out": torch.zeros(1)}, {"m": 4}, races=True)


def test_views_of_one_storage_share_their_elements():
    base = torch.zeros(8)
    body = over_tiles(
        """
    %v = load(%x, none, [%i]) : f32[m]
    store(%y, %v, none, [%i])""",
        6,
    )
    with pytest.raises(RaceDetected, match=r"race on `[xy]` at index"):
        run_text(body, {"x": base[:6], "y": base[1:7]}, {"m": 2}, races=True)
    run_text(body, {"x": base[:6], "y": torch.zeros(6)}, {"m": 2}, races=True)


def test_a_tensor_that_shows_one_element_many_times_is_watched():
    body = over_tiles(
        """
    %v = load(%x, none, [%i]) : f32[m]
    store(%y, %v, none, [%i])""",
        8,
    )
    spread = torch.ones(1).expand(8)
    out = torch.zeros(8)
    run_text(body, {"x": spread, "y": out}, {"m": 4}, races=True)
    assert out.tolist() == [1.0] * 8
    memory = torch.zeros(8)
    with pytest.raises(RaceDetected):
        run_text(body, {"x": memory[5:6].expand(8), "y": memory}, {"m": 4}, races=True)


def test_masked_lanes_do_not_race():
    body = over_tiles(
        """
    %first = elementwise(%begin, %zero) {fn="eq"} : bool[]
    %v = full() {value=1.0} : f32[]
    store(%out, %v, %first, [%zero])
    %lanes = full() {value=0} : i64[m]
    %mask = elementwise(%i, %lanes) {fn="eq"} : bool[m]
    %w = full() {value=2.0} : f32[m]
    store(%out, %w, %mask, [%lanes])""",
        8,
    )
    out = torch.zeros(1)
    run_text(body, {"out": out}, {"m": 4}, races=True)
    assert out.item() == 2.0


def test_many_lanes_may_read_one_element():
    body = over_tiles(
        """
    %lanes = full() {value=1} : i64[m]
    %v = load(%x, none, [%lanes]) : f32[m]
    store(%out, %v, none, [%i])""",
        8,
    )
    out = torch.zeros(8)
    run_text(body, {"x": torch.tensor([1.0, 2.0]), "out": out}, {"m": 4}, races=True)
    assert out.tolist() == [2.0] * 8
