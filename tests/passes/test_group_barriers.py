"""Barriers of groups of programs stay where they are, and no access moves across one."""

from __future__ import annotations

import pytest
import torch

from tests.lowering import run_standard
from tests.passes.kernel_texts import parse_kernel, results_of
from tests.passes.program_text import body_lines
from tilesmith.analysis.effects import (
    groups_written_in,
    tensors_read,
    tensors_written,
    touched_groups,
    written_groups,
)
from tilesmith.analysis.restructuring import find_flattenable, find_rollable_dims
from tilesmith.backends.cpu.backend import emit as emit_native
from tilesmith.exc import BackendUnsupported
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import GroupBarrier
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Dim
from tilesmith.passes.accesses import forward_stored_values, order_memory
from tilesmith.passes.eliminate_dead_code import eliminate_dead_code
from tilesmith.passes.expressions import merge_common_subexpressions
from tilesmith.passes.roll_reductions import roll_reductions
from tilesmith.schedule.schedule import Schedule
from tilesmith.targets import parse_target

BARRIER = "group_barrier(%counts, %zero, %all)"
ROWS, LENGTH = 5, 48


def program(body: str, axes: str = '[%zero], [%rows]) {blocks=["m"]} (%b: i32[])') -> Function:
    """A grid over rows of ``x``, whose programs are one group of three."""
    return parse_kernel(f"""func @meeting {{
  param %x: tensor<f32[{ROWS}, {LENGTH}], strides=[{LENGTH}, 1], alias=0> from "x"
  param %y: tensor<f32[{ROWS}], strides=[1], alias=1> from "y"
  param %out: tensor<f32[{ROWS}], strides=[1], alias=2> from "out"
  param %counts: tensor<i32[2], strides=[1], alias=-1> from "counts"
  block m {{slot=0}}
  block n {{slot=1}}
  %zero = full() {{value=0}} : i32[]
  %rows = full() {{value={ROWS}}} : i32[]
  %all = full() {{value=3}} : i32[]
  grid({axes} {{
    %i = tile_index(%b) {{block="m"}} : i32[m]
    {body}
  }}
}}
""")


def names_after(function: Function) -> list[str]:
    """The names of the accesses and barriers of the body, in order."""
    kinds = ("load", "store", "group_barrier", "program_barrier")
    names = [line.split(" = ")[-1].split("(")[0] for line in body_lines(function)]
    return [name for name in names if name in kinds]


COPIED = """
    %v = load(%y, none, [%i]) : f32[m]
    store(%out, %v, none, [%i])
    BETWEEN
    %w = load(%out, none, [%i]) : f32[m]
    %u = load(%y, none, [%i]) : f32[m]
    %s = elementwise(%w, %u) {fn="add"} : f32[m]
    store(%out, %s, none, [%i])
"""


def test_it_may_read_and_change_any_memory() -> None:
    function = program(BARRIER)
    (barrier,) = [op for op in walk_function(function) if isinstance(op, GroupBarrier)]
    assert touched_groups(barrier) is None
    assert written_groups(barrier) is None
    assert groups_written_in(function.body) is None


def test_its_counts_are_updated_in_place() -> None:
    function = program(BARRIER)
    assert tensors_read(function) == ("counts",)
    assert tensors_written(function) == ("counts",)


def test_it_is_not_dropped_though_nothing_uses_what_it_does() -> None:
    assert names_after(eliminate_dead_code(program(BARRIER))) == ["group_barrier"]


def test_equal_ones_are_not_merged() -> None:
    function = merge_common_subexpressions(program(f"{BARRIER}\n{BARRIER}"))
    assert names_after(function) == ["group_barrier"] * 2


@pytest.mark.parametrize(("between", "num_loads"), [("", 2), (BARRIER, 3)])
def test_a_load_after_it_is_another_load(between: str, num_loads: int) -> None:
    function = merge_common_subexpressions(program(COPIED.replace("BETWEEN", between)))
    assert names_after(function).count("load") == num_loads


@pytest.mark.parametrize(("between", "num_loads"), [("", 2), (BARRIER, 3)])
def test_what_was_stored_before_it_may_have_changed(between: str, num_loads: int) -> None:
    function = forward_stored_values(program(COPIED.replace("BETWEEN", between)))
    assert names_after(function).count("load") == num_loads


SHIFTED = """
    %v = load(%x, none, [%i, %zero]) : f32[m]
    store(%y, %v, none, [%i])
    BETWEEN
    %w = load(%y, none, [%zero]) : f32[]
    store(%out, %w, none, [%zero])
"""


def test_all_threads_of_a_program_meet_at_it() -> None:
    shifted = order_memory(program(SHIFTED.replace("BETWEEN", "")))
    assert names_after(shifted) == ["load", "store", "program_barrier", "load", "store"]
    shifted = order_memory(program(SHIFTED.replace("BETWEEN", BARRIER)))
    assert names_after(shifted) == ["load", "store", "group_barrier", "load", "store"]


def test_barriers_are_still_put_between_accesses_after_it() -> None:
    function = order_memory(program(BARRIER + SHIFTED.replace("BETWEEN", "")))
    assert names_after(function) == [
        "group_barrier", "load", "store", "program_barrier", "load", "store",
    ]  # fmt: skip


EXCHANGED = f"""
    %r = expand_dims(%i) {{axes=[1]}} : i32[m, 1]
    %n = arange() : i32[{LENGTH}]
    %c = expand_dims(%n) {{axes=[0]}} : i32[1, {LENGTH}]
    %v = load(%x, none, [%r, %c]) : f32[m, {LENGTH}]
    %part = reduce(%v) {{axis=1, kind="sum"}} : f32[m]
    store(%y, %part, none, [%i])
    {BARRIER}
    %five = arange() : i32[{ROWS}]
    %parts = load(%y, none, [%five]) : f32[{ROWS}]
    %total = reduce(%parts) {{axis=0, kind="sum"}} : f32[]
"""
SPREAD = """
    %one = expand_dims(%total) {axes=[0]} : f32[1]
    %wide = broadcast(%one) : f32[m]
    store(%out, %wide, none, [%i])
"""


def exchange_of(function: Function, **sizes: int) -> torch.Tensor:
    x = torch.arange(float(ROWS * LENGTH)).reshape(ROWS, LENGTH)
    arguments = {
        "x": x,
        "y": torch.full((ROWS,), torch.nan),
        "out": torch.zeros(ROWS),
        "counts": torch.zeros(2, dtype=torch.int32),
    }
    return results_of(function, arguments, {"m": 2, "n": 1, **sizes})["out"]


TOTAL = ROWS * LENGTH * (ROWS * LENGTH - 1) / 2
"""Whole numbers below 2**24, so in any order."""


def test_standard_passes_keep_the_exchange() -> None:
    function = run_standard(program(EXCHANGED + SPREAD))
    assert names_after(function) == ["load", "store", "group_barrier", "load", "store"]
    assert exchange_of(function).tolist() == [TOTAL] * ROWS


def test_rows_walked_in_chunks_meet_after_all_chunks() -> None:
    function = program(EXCHANGED + SPREAD)
    assert Dim.of(LENGTH) in find_rollable_dims(function)
    rolled = order_memory(roll_reductions(function, {Dim.of(LENGTH): "chunk"}))
    assert exchange_of(rolled, chunk=16).tolist() == [TOTAL] * ROWS


def test_rows_loaded_before_it_are_not_loaded_again_after_it() -> None:
    again = f"""
    %one = expand_dims(%total) {{axes=[0, 1]}} : f32[1, 1]
    %wide = broadcast(%one) : f32[m, {LENGTH}]
    %less = elementwise(%v, %wide) {{fn="sub"}} : f32[m, {LENGTH}]
    %peak = reduce(%less) {{axis=1, kind="max"}} : f32[m]
    store(%out, %peak, none, [%i])
"""
    with_barrier = EXCHANGED + again
    assert Dim.of(LENGTH) not in find_rollable_dims(program(with_barrier))
    without = with_barrier.replace(BARRIER, "").replace("store(%y, %part, none, [%i])", "")
    assert Dim.of(LENGTH) in find_rollable_dims(program(without))


@pytest.mark.parametrize(("between", "expected"), [("", (-1,)), (BARRIER, ())])
def test_grids_whose_programs_meet_keep_their_axes(between: str, expected: tuple[int, ...]) -> None:
    axes = '[%zero, %zero], [%rows, %all]) {blocks=["m", "n"]} (%b: i32[], %d: i32[])'
    body = f"""
    %j = tile_index(%d) {{block="n"}} : i32[n]
    %r = expand_dims(%i) {{axes=[1]}} : i32[m, 1]
    %c = expand_dims(%j) {{axes=[0]}} : i32[1, n]
    %v = load(%x, none, [%r, %c]) : f32[m, n]
    {between}
    store(%x, %v, none, [%r, %c])
"""
    assert find_flattenable(program(body, axes)) == expected


def test_native_code_refuses_it() -> None:
    schedule = Schedule(target=parse_target("cpu:avx2"), padded={}, symbols={"m": 2, "n": 1})
    with pytest.raises(BackendUnsupported, match="barrier of programs of one grid"):
        emit_native(program(EXCHANGED + SPREAD), schedule)
