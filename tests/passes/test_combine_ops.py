"""Passes on ops with a combination: its region knows nothing of what is around it."""

from __future__ import annotations

import pytest
import torch

from tests.backends.triton.kernels import parse, rows
from tests.backends.triton.test_squeeze_unit_axes import check
from tests.passes.program_text import body_after, body_lines, make_program
from tests.passes.test_mask_partial_tiles import masked_lines, masks
from tilesmith.analysis.restructuring import find_rollable_dims
from tilesmith.ir.printer import print_function
from tilesmith.passes.eliminate_dead_code import eliminate_dead_code
from tilesmith.passes.expressions import hoist_loop_invariants, merge_common_subexpressions
from tilesmith.passes.squeeze_unit_axes import squeeze_unit_axes

HALVED = """(%lhs: f32[], %rhs: f32[]) {
  %half = full() {value=0.5} : f32[]
  %again = full() {value=0.5} : f32[]
  %low = elementwise(%lhs, %half) {fn="mul"} : f32[]
  %high = elementwise(%rhs, %again) {fn="mul"} : f32[]
  %both = elementwise(%low, %high) {fn="add"} : f32[]
  yield(%both)
}"""


def reduction(value: str, attributes: str) -> str:
    return f"""
    %r0 = reduce_with({value}) {{axis=1, {attributes}}} : f32[t] {HALVED}
    store(%y, %r0, none, [%i])
    """


def test_masked_lanes_are_filled_with_others():
    assert masks(reduction("%v", "others=[2.0]")) == ["mask(%v) {fill=2.0, axes=[1]}"]


def test_a_reduction_with_others_reads_the_filled_lanes_not_the_unfilled():
    lines = masked_lines(reduction("%v", "others=[2.0]"))
    (mask,) = (line.split(" = ")[0] for line in lines if " = mask(" in line)
    assert any(f"= reduce_with({mask})" in line for line in lines)


def test_each_of_two_equal_operands_is_filled_with_its_own_other():
    pair = (
        HALVED.replace("(%lhs: f32[], %rhs", "(%lhs: f32[], %l: f32[], %rhs")
        .replace("%rhs: f32[])", "%rhs: f32[], %r: f32[])")
        .replace("yield(%both)", "yield(%both, %l)")
    )
    lines = masked_lines(f"""
        %r0, %r1 = reduce_with(%v, %v) {{axis=1, others=[2.0, 3.0]}} : f32[t], f32[t] {pair}
        store(%y, %r0, none, [%i])
    """)
    first, second = (line.split(" = ")[0] for line in lines if " = mask(" in line)
    assert any(f"= reduce_with({first}, {second})" in line for line in lines)


def test_loaded_zeros_need_no_filling():
    assert masks(reduction("%v", "others=[0.0]")) == []


def test_without_others_backends_leave_invalid_lanes_out():
    assert masks(reduction("%v", "others=none")) == []


def line(value: str) -> str:
    return f"%s = scan_with({value}) {{axis=0}} : f32[t] {HALVED}"


STORED = "store(%y, %s, none, [%i])"


def test_equal_constants_are_merged_inside_but_not_across_the_border():
    program = make_program(f"""
        %outside = full() {{value=0.5}} : f32[]
        %v = load(%x, none, [%i]) : f32[t]
        {line("%v")}
        {STORED}
        store(%x, %outside, none, [%zero])
    """)
    lines = body_after(merge_common_subexpressions, program)
    assert sum("full() {value=0.5}" in text for text in lines) == 2


def test_dead_ops_inside_and_dead_combinations_go():
    dead = HALVED.replace("%low, %high", "%low, %rhs")
    program = make_program(f"""
        %v = load(%x, none, [%i]) : f32[t]
        %s = scan_with(%v) {{axis=0}} : f32[t] {dead}
        %z = scan_with(%v) {{axis=0}} : f32[t] {dead.replace("%", "%z_")}
        {STORED}
    """)
    lines = body_after(eliminate_dead_code, program)
    assert sum("scan_with" in text for text in lines) == 1
    assert sum("full()" in text for text in lines) == 1


def test_a_combination_stays_in_its_loop():
    program = make_program(f"""
        %v = load(%x, none, [%i]) : f32[t]
        loop([%zero], [%hundred], [%hundred], []) {{blocks=[""]}} (%k: i32[]) {{
          {line("%v")}
          {STORED}
        }}
    """)
    assert body_after(hoist_loop_invariants, program) == body_lines(program)


@pytest.mark.parametrize("axis", [0, 1])
def test_unit_axes_are_renumbered_or_gone(axis: int):
    body = f"%r = scan_with(%x_tile) {{axis={axis}}} : f32[tile_m, 7] {HALVED}"
    function = parse(rows("f32", 5, 7, body))
    check(function, ["tile_m"], {"tile_m": 1}, torch.randn(5, 7), torch.zeros(5, 7))
    text = print_function(squeeze_unit_axes(function, ["tile_m"]))
    assert ("scan_with" in text) == (axis == 1)


@pytest.mark.parametrize("name", ["scan_with", "reduce_with"])
def test_rows_of_a_combination_are_not_rolled(name: str):
    combined = f"%s = {name}(%x_tile) {{axis=1}} : f32[tile_m, 7] {HALVED}"
    if name == "reduce_with":
        combined = combined.replace("f32[tile_m, 7]", "f32[tile_m]")
    total = '%total = reduce(%x_tile) {axis=1, kind="sum"} : f32[tile_m]'
    spread = """
    %c = expand_dims(%total) {axes=[1]} : f32[tile_m, 1]
    %r = broadcast(%c) : f32[tile_m, 7]
    """
    assert find_rollable_dims(parse(rows("f32", 5, 7, total + spread)))
    assert not find_rollable_dims(parse(rows("f32", 5, 7, f"{total}\n{combined}\n{spread}")))
