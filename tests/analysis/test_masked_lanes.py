"""What invalid lanes hold, op by op."""

from __future__ import annotations

from math import inf

import pytest

from tests.passes.program_text import make_program
from tilesmith.analysis.masked_lanes import Lanes, find_masked_lanes
from tilesmith.ir.traversal import walk_function

LOADED = """
    %j = arange() : i32[6]
    %i1 = expand_dims(%i) {axes=[1]} : i32[t, 1]
    %j1 = expand_dims(%j) {axes=[0]} : i32[1, 6]
    %v = load(%w, none, [%i1, %j1]) : f32[t, 6]
"""


def lanes_of(body: str, shape: str = "f32[t, 6]") -> Lanes:
    """What is known of ``%z`` where a cast uses it."""
    function = make_program(f"{LOADED}{body}\n%used = cast(%z) : {shape.replace('f32', 'f64')}")
    facts = find_masked_lanes(function)
    users = (op for op in walk_function(function) if op.results and op.results[0].name == "used")
    (used,) = users
    (lanes,) = facts[used].values()
    return lanes


@pytest.mark.parametrize(
    ("body", "shape", "expected"),
    [
        ('%z = elementwise(%v) {fn="neg"} : f32[t, 6]', "f32[t, 6]", (0.0, 0.0)),
        ('%z = elementwise(%v) {fn="exp"} : f32[t, 6]', "f32[t, 6]", (None, None)),
        ("%z = permute(%v) {order=[1, 0]} : f32[6, t]", "f32[6, t]", (0.0, 0.0)),
        ("%z = mask(%v) {fill=3.0, axes=[1]} : f32[t, 6]", "f32[t, 6]", (None, 3.0)),
        ("%z = expand_dims(%v) {axes=[1]} : f32[t, 1, 6]", "f32[t, 1, 6]", (0.0, None, 0.0)),
        ("%z = reshape(%v) : f32[t, 2, 3]", "f32[t, 2, 3]", (None, None, None)),
    ],
    ids=["neg", "exp", "permute", "mask", "expand_dims", "reshape"],
)
def test_known_constants_follow_their_axes(
    body: str, shape: str, expected: tuple[float | None, ...]
):
    assert lanes_of(body, shape).axes == expected


def test_a_repeated_axis_holds_what_every_lane_holds():
    body = """
        %one = full() {value=1.0} : f32[t, 1]
        %z = broadcast(%one) : f32[t, 6]
    """
    assert lanes_of(body) == Lanes((1.0, 1.0), 1.0)
    body = """
        %m = reduce(%v) {axis=1, kind="sum"} : f32[t]
        %m1 = expand_dims(%m) {axes=[1]} : f32[t, 1]
        %z = broadcast(%m1) : f32[t, 6]
    """
    assert lanes_of(body).axes == (0.0, None)


@pytest.mark.parametrize(("kind", "expected"), [("sum", 0.0), ("prod", None), ("max", None)])
def test_a_reduction_of_neutral_lanes_is_neutral(kind: str, expected: float | None):
    body = f'%z = reduce(%v) {{axis=1, kind="{kind}"}} : f32[t]'
    assert lanes_of(body, "f32[t]").axes == (expected,)


def test_a_reduction_of_filled_lanes_is_what_they_were_filled_with():
    body = """
        %m = mask(%v) {fill=-inf, axes=[0]} : f32[t, 6]
        %z = reduce(%m) {axis=1, kind="max"} : f32[t]
    """
    assert lanes_of(body, "f32[t]").axes == (-inf,)


@pytest.mark.parametrize(("reverse", "expected"), [("false", (0.0, None)), ("true", (0.0, 0.0))])
def test_a_scan_knows_its_own_axis_in_reverse_only(
    reverse: str, expected: tuple[float | None, ...]
):
    # Forwards, lanes past the end follow valid ones and hold their total.
    body = f'%z = scan(%v) {{axis=1, kind="sum", reverse={reverse}}} : f32[t, 6]'
    assert lanes_of(body).axes == expected


def test_nothing_is_known_of_other_ops():
    body = """
        %p = broadcast(%j1) : i32[t, 6]
        %z = gather(%v, %p) {axis=1} : f32[t, 6]
    """
    assert lanes_of(body) == Lanes((None, None))
