"""Axes of one length are told apart by what ops do with them."""

from __future__ import annotations

from tests.passes.program_text import find_grid, make_program
from tilesmith.analysis.row_products import find_axis

START = """
    %j = arange() : i32[6]
    %i1 = expand_dims(%i) {axes=[1]} : i32[t, 1]
    %j1 = expand_dims(%j) {axes=[0]} : i32[1, 6]
    %v = load(%w, none, [%i1, %j1]) : f32[t, 6]
"""


def same_axes(body: str, name: str = "v", axis: int = 1) -> dict[str, int] | None:
    """The named values that have an axis, and which it is."""
    ops = find_grid(make_program(START + body)).body.ops
    values = {value.name: value for op in ops for value in op.results}
    found = find_axis(ops, values[name], axis)
    return None if found is None else {value.name: number for value, number in found.items()}


def test_an_axis_is_followed_through_views_functions_and_accesses():
    found = same_axes("""
        %e = elementwise(%v) {fn="exp"} : f32[t, 6]
        %p = permute(%e) {order=[1, 0]} : f32[6, t]
        %x1 = expand_dims(%p) {axes=[0]} : f32[1, 6, t]
        %s = reduce(%e) {axis=0, kind="sum"} : f32[6]
    """)
    assert found == {"v": 1, "e": 1, "p": 0, "x1": 1, "s": 0, "j1": 1, "j": 0}


def test_contracted_axes_are_one_axis():
    found = same_axes(
        """
        %r = full() {value=1.0} : f32[6, 6]
        %d = dot(%v, %r, none) : f32[t, 6]
        """,
    )
    assert found == {"v": 1, "r": 0, "j1": 1, "j": 0}


def test_an_axis_that_two_axes_of_a_value_share_is_not_told():
    assert same_axes("%q = load(%w, none, [%j1, %j1]) : f32[1, 6]") is not None
    body = """
        %rows = expand_dims(%j) {axes=[1]} : i32[6, 1]
        %q = load(%w, none, [%rows, %j1]) : f32[6, 6]
    """
    assert same_axes(body) is None


def test_an_axis_that_is_mixed_moved_or_indexed_is_not_told():
    for body in (
        '%q = scan(%v) {axis=1, kind="sum"} : f32[t, 6]',
        "%q = reshape(%v) : f32[t, 2, 3]",
        "%q = select(%v) {axis=1, position=0} : f32[t]",
        "%q = join(%v, %v) : f32[t, 6, 2]",
    ):
        assert same_axes(body) is None, body


def test_a_carried_axis_is_the_same_in_all_iterations():
    found = same_axes("""
        %k = full() {value=0.0} : f32[t, 6]
        %s = loop([%zero], [%hundred], [], [%k]) {blocks=["u"]} : f32[t, 6]
        (%c0: i32[], %old: f32[t, 6]) {
          %new = elementwise(%old, %v) {fn="add"} : f32[t, 6]
          yield(%new)
        }
    """)
    assert found is not None
    assert {"v", "j", "j1"} <= found.keys()
