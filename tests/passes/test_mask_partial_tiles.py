"""Masks appear exactly where invalid lanes would reach valid ones."""

from __future__ import annotations

import pytest

from tests.passes.program_text import body_after, make_program
from tilesmith.passes.masks import mask_partial_tiles

# x and y are loaded as [t, u] tiles; u is bound by a loop, so both axes may be partial.
TILE = """
    %j = tile_index(%k) {block="u"} : i32[u]
    %rows = expand_dims(%i) {axes=[1]} : i32[t, 1]
    %columns = expand_dims(%j) {axes=[0]} : i32[1, u]
    %v = load(%w, none, [%rows, %columns]) : f32[t, u]
"""


def masked_lines(inside: str, before: str = "") -> list[str]:
    header = 'loop([%zero], [%hundred], [], []) {blocks=["u"]} (%k: i32[])'
    program = make_program(f"{before}\n{header} {{ {TILE} {inside} }}")
    return body_after(mask_partial_tiles, program)


def masks(inside: str, before: str = "") -> list[str]:
    lines = masked_lines(inside, before)
    return [line.split(" = ", 1)[1].split(" :")[0] for line in lines if " = mask(" in line]


def reduce_of(value: str, kind: str, dtype: str = "f32") -> str:
    return f"""
        %r = reduce({value}) {{axis=1, kind="{kind}"}} : {dtype}[t]
        store(%y, %r, none, [%i])
    """


def test_sum_of_loaded_lanes_needs_no_mask() -> None:
    assert masks(reduce_of("%v", "sum")) == []


def test_sum_of_computed_lanes_is_masked_with_zero() -> None:
    body = '%e = elementwise(%v) {fn="exp"} : f32[t, u]' + reduce_of("%e", "sum")
    assert masks(body) == ["mask(%e) {fill=0.0, axes=[1]}"]


@pytest.mark.parametrize(
    ("kind", "fill"), [("max", "-inf"), ("min", "inf"), ("prod", "1.0"), ("sum", None)]
)
def test_loaded_zeros_are_neutral_for_sums_only(kind: str, fill: str | None) -> None:
    expected = [] if fill is None else [f"mask(%v) {{fill={fill}, axes=[1]}}"]
    assert masks(reduce_of("%v", kind)) == expected


def test_what_is_sorted_is_masked_with_the_greatest_integer() -> None:
    body = """
        %keys = cast(%v) : i32[t, u]
        %ordered = sort(%keys) {axis=1} : i32[t, u]
        %g = cast(%ordered) : f32[t, u]
        store(%w, %g, none, [%rows, %columns])
    """
    assert masks(body) == ["mask(%keys) {fill=2147483647, axes=[1]}"]


def scan_of(value: str, kind: str, *, reverse: bool) -> str:
    options = f'{{axis=1, kind="{kind}", reverse={str(reverse).lower()}}}'
    return f"%s = scan({value}) {options} : f32[t, u]"


@pytest.mark.parametrize(
    ("kind", "fill"), [("max", "-inf"), ("min", "inf"), ("prod", "1.0"), ("sum", "0.0")]
)
def test_scans_need_a_mask_in_reverse_only(kind: str, fill: str) -> None:
    exponential = '%e = elementwise(%v) {fn="exp"} : f32[t, u]\n'
    forwards, backwards = (scan_of("%e", kind, reverse=reverse) for reverse in (False, True))
    assert masks(exponential + forwards) == []
    assert masks(exponential + backwards) == [f"mask(%e) {{fill={fill}, axes=[1]}}"]


def test_lanes_past_the_end_hold_the_total_of_a_scan_unless_it_runs_in_reverse() -> None:
    forwards, backwards = (scan_of("%v", "sum", reverse=reverse) for reverse in (False, True))
    assert masks(forwards + reduce_of("%s", "sum")) == ["mask(%s) {fill=0.0, axes=[1]}"]
    assert masks(backwards + reduce_of("%s", "sum")) == []


def test_a_scan_of_merged_axes_has_invalid_lanes_between_valid_ones() -> None:
    body = """
        %e = elementwise(%v) {fn="exp"} : f32[t, u]
        %merged = reshape(%e) : f32[t*u]
        %s = scan(%merged) {axis=0, kind="sum"} : f32[t*u]
    """
    assert masks(body) == ["mask(%merged) {fill=0.0, axes=[0]}"]


def test_known_lanes_follow_lane_wise_ops_casts_and_views() -> None:
    body = """
        %s = elementwise(%v, %v) {fn="mul"} : f32[t, u]
        %c0 = cast(%s) : bf16[t, u]
        %c1 = cast(%c0) : f32[t, u]
        %p = permute(%c1) {order=[1, 0]} : f32[u, t]
        %r = reduce(%p) {axis=0, kind="sum"} : f32[t]
        store(%y, %r, none, [%i])
    """
    assert masks(body) == []
    assert masks(body.replace('"mul"', '"div"')) == ["mask(%p) {fill=0.0, axes=[0]}"]


def test_squares_about_a_mean_are_masked() -> None:
    body = """
        %m = reduce(%v) {axis=1, kind="sum"} : f32[t]
        %m1 = expand_dims(%m) {axes=[1]} : f32[t, 1]
        %mb = broadcast(%m1) : f32[t, u]
        %d = elementwise(%v, %mb) {fn="sub"} : f32[t, u]
        %q = elementwise(%d, %d) {fn="mul"} : f32[t, u]
    """
    assert masks(body + reduce_of("%q", "sum")) == ["mask(%q) {fill=0.0, axes=[1]}"]


def test_where_that_fills_by_a_known_condition_is_followed() -> None:
    body = """
        %one = full() {value=1.0} : f32[t, u]
        %true = full() {value=true} : bool[t, u]
        %valid = mask(%true) {fill=false, axes=[1]} : bool[t, u]
        %none = full() {value=-inf} : f32[t, u]
        %q = elementwise(%valid, %v, %none) {fn="where"} : f32[t, u]
    """
    assert masks(body + reduce_of("%q", "max")) == ["mask(%true) {fill=false, axes=[1]}"]


def test_value_from_outside_the_loop_is_not_known_inside() -> None:
    before = """
        %arange = arange() : i32[u]
        %outer = load(%x, none, [%arange]) : f32[u]
    """
    body = """
        %r = reduce(%outer) {axis=0, kind="sum"} : f32[]
        store(%y, %r, none, [%k])
    """
    assert masks(body, before) == ["mask(%outer) {fill=0.0, axes=[0]}"]
    zeros = "%outer = full() {value=0.0} : f32[u]"
    assert masks(body, zeros) == []


def test_masking_twice_changes_nothing() -> None:
    body = '%e = elementwise(%v) {fn="exp"} : f32[t, u]' + reduce_of("%e", "max")
    header = 'loop([%zero], [%hundred], [], []) {blocks=["u"]} (%k: i32[])'
    once = mask_partial_tiles(make_program(f"{header} {{ {TILE} {body} }}"))
    assert mask_partial_tiles(once) is once


@pytest.mark.parametrize(
    ("size", "is_masked"), [(200, True), (64, False), (32, False), (16, True), (1, False)]
)
def test_constant_axes_are_masked_unless_never_padded(size: int, is_masked: bool) -> None:
    program = make_program(f"""
        %v = full() {{value=1.0}} : f32[t, {size}]
        %r = reduce(%v) {{axis=1, kind="sum"}} : f32[t]
        store(%y, %r, none, [%i])
    """)
    assert any("mask(" in line for line in body_after(mask_partial_tiles, program)) is is_masked


DOT = """
    %j = tile_index(%k) {block="u"} : i32[u]
    %rows = expand_dims(%i) {axes=[1]} : i32[t, 1]
    %columns = expand_dims(%j) {axes=[0]} : i32[1, u]
    %l0 = load(%w, none, [%rows, %columns]) : f32[t, u]
    %inner = expand_dims(%j) {axes=[1]} : i32[u, 1]
    %n = arange() : i32[32]
    %outer = expand_dims(%n) {axes=[0]} : i32[1, 32]
    %r0 = load(%w, none, [%inner, %outer]) : f32[u, 32]
"""


def dot_masks(prepare: str, lhs: str, rhs: str) -> list[str]:
    header = 'loop([%zero], [%hundred], [], []) {blocks=["u"]} (%k: i32[])'
    program = make_program(f"""
        {header} {{
          {DOT}
          {prepare}
          %d = dot({lhs}, {rhs}, none) : f32[t, 32]
          %s = reduce(%d) {{axis=1, kind="sum"}} : f32[t]
          store(%y, %s, none, [%i])
        }}
    """)
    lines = body_after(mask_partial_tiles, program)
    return [line.split(" = ", 1)[1].split(" :")[0] for line in lines if " = mask(" in line]


def test_dot_of_loaded_tiles_needs_no_mask() -> None:
    assert dot_masks("", "%l0", "%r0") == []


def test_each_dot_operand_is_masked_along_the_contracted_axis() -> None:
    prepare = """
        %l1 = elementwise(%l0) {fn="exp"} : f32[t, u]
        %r1 = elementwise(%r0) {fn="exp"} : f32[u, 32]
    """
    assert dot_masks(prepare, "%l1", "%r0") == ["mask(%l1) {fill=0.0, axes=[1]}"]
    assert dot_masks(prepare, "%l1", "%r1") == [
        "mask(%l1) {fill=0.0, axes=[1]}",
        "mask(%r1) {fill=0.0, axes=[0]}",
    ]


def accumulate(step: str) -> str:
    program = make_program(f"""
        %init = full() {{value=1.0}} : f32[u]
        %acc = loop([%zero], [%hundred], [], [%init]) {{blocks=["u"]}} : f32[u] \
(%k: i32[], %old: f32[u]) {{
          %j = tile_index(%k) {{block="u"}} : i32[u]
          %v = load(%x, none, [%j]) : f32[u]
          {step}
          yield(%new)
        }}
        %s = reduce(%acc) {{axis=0, kind="sum"}} : f32[]
        store(%y, %s, none, [%zero])
    """)
    once = mask_partial_tiles(program)
    assert mask_partial_tiles(once) is once
    return "\n".join(body_after(mask_partial_tiles, program))


def test_carried_value_with_the_loops_own_axis_keeps_its_old_lanes() -> None:
    text = accumulate('%new = elementwise(%old, %v) {fn="maximum"} : f32[u]')
    assert "mask(%0) {fill=false, axes=[0]} : bool[u]" in text
    assert 'elementwise(%1, %new, %old) {fn="where"} : f32[u]' in text


def test_accumulation_of_neutral_lanes_keeps_them_by_itself() -> None:
    assert "where" not in accumulate('%new = elementwise(%v, %old) {fn="add"} : f32[u]')
    twice = '%e = elementwise(%v) {fn="exp"} : f32[u]\n'
    assert "where" in accumulate(twice + '%new = elementwise(%e, %old) {fn="add"} : f32[u]')
    assert "where" in accumulate('%new = elementwise(%v, %old) {fn="sub"} : f32[u]')
    assert "where" in accumulate('%new = elementwise(%old, %old) {fn="add"} : f32[u]')


def test_carried_value_of_a_longer_tile_is_not_taken_for_neutral() -> None:
    body = """
        %init = full() {value=0.0} : f32[u]
        %acc = loop([%zero], [%hundred], [], [%init]) {blocks=["u"]} : f32[u] \
(%k: i32[], %old: f32[u]) {
          %s = reduce(%old) {axis=0, kind="sum"} : f32[]
          store(%y, %s, none, [%k])
          %j = tile_index(%k) {block="u"} : i32[u]
          %v = load(%x, none, [%j]) : f32[u]
          yield(%v)
        }
    """
    text = "\n".join(body_after(mask_partial_tiles, make_program(body)))
    assert "mask(%old) {fill=0.0, axes=[0]}" in text


# A loop to the greatest of %lengths, with the tile loaded as [t, u] where its indices are below.
LENGTHS = """
    %n0 = load(%y, none, [%i]) : f32[t]
    %lengths = cast(%n0) : i32[t]
    %longest = reduce(%lengths) {axis=0, kind="max"} : i32[]
"""
BELOW = """
    %limits = expand_dims(%lengths) {axes=[1]} : i32[t, 1]
    %all_limits = broadcast(%limits) : i32[t, u]
    %all_columns = broadcast(%columns) : i32[t, u]
    %below = elementwise(%all_columns, %all_limits) {fn="lt"} : bool[t, u]
    %low = full() {value=-inf} : f32[t, u]
    %s = elementwise(%below, %v, %low) {fn="where"} : f32[t, u]
"""


def masks_to(end: str, inside: str) -> list[str]:
    header = f'loop([%zero], [{end}], [], []) {{blocks=["u"]}} (%k: i32[])'
    program = make_program(f"{LENGTHS} {header} {{ {TILE} {BELOW} {inside} }}")
    lines = body_after(mask_partial_tiles, program)
    found = [line.split(" = ", 1)[1].split(" :")[0] for line in lines if " = mask(" in line]
    # Where the lengths are combined, their own invalid lanes are reset.
    return [line for line in found if not line.startswith("mask(%lengths)")]


def test_a_comparison_with_lengths_masks_a_loop_that_ends_at_the_greatest() -> None:
    assert masks_to("%longest", reduce_of("%s", "max")) == []


def test_a_loop_that_ends_elsewhere_is_masked_besides() -> None:
    assert masks_to("%hundred", reduce_of("%s", "max")) == ["mask(%s) {fill=-inf, axes=[1]}"]


def test_what_is_selected_has_to_be_neutral() -> None:
    assert masks_to("%longest", reduce_of("%s", "sum")) == ["mask(%s) {fill=0.0, axes=[1]}"]


def test_lengths_say_nothing_about_their_own_axis() -> None:
    across = """
        %r = reduce(%s) {axis=0, kind="max"} : f32[u]
        store(%x, %r, none, [%j])
    """
    assert masks_to("%longest", across) == ["mask(%s) {fill=-inf, axes=[0]}"]


def test_a_minimum_of_lengths_is_no_end_of_all() -> None:
    body = BELOW + reduce_of("%s", "max")
    least = '%least = reduce(%lengths) {axis=0, kind="min"} : i32[]'
    header = 'loop([%zero], [%least], [], []) {blocks=["u"]} (%k: i32[])'
    program = make_program(f"{LENGTHS} {least} {header} {{ {TILE} {body} }}")
    lines = body_after(mask_partial_tiles, program)
    assert any("mask(%s) {fill=-inf, axes=[1]}" in line for line in lines)


def test_sides_that_agree_are_known_whatever_is_selected() -> None:
    body = """
        %z = full() {value=0.0} : f32[t, u]
        %c0 = elementwise(%v, %z) {fn="lt"} : bool[t, u]
        %s = elementwise(%c0, %v, %z) {fn="where"} : f32[t, u]
    """
    assert masks(body + reduce_of("%s", "sum")) == []
