"""Comparisons with the end of a loop hold in all its turns; any other comparison stays."""

from __future__ import annotations

import pytest

from tests.passes.program_text import body_after, make_program
from tilesmith.passes.settled_conditions import settle_conditions

# In the grid over tiles %i of t, which ends at %hundred; the inner loop over u ends at %n.
LOOP = """
    %m = load(%y, none, [%b]) : f32[]
    %n = cast(%m) {{bitcast=false}} : i32[]
    %l = cast(%n) {{bitcast=false}} : i64[]
    loop([%zero], [%n], [], []) {{blocks=["u"], slot=0}} (%k: i32[]) {{
      %j = tile_index(%k) {{block="u"}} : i32[u]
      {body}
      %v = load(%x, %c1, [%j]) : f32[u]
      %o = full() {{value=2.0}} : f32[u]
      %s = elementwise(%c1, %v, %o) {{fn="where"}} : f32[u]
      store(%x, %s, %c1, [%j])
      yield()
    }}
"""


def spread(value: str, dtype: str = "i32", name: str = "%e") -> str:
    return (
        f"{name}1 = expand_dims({value}) {{axes=[0]}} : {dtype}[1]\n"
        f"{name} = broadcast({name}1) : {dtype}[u]\n"
    )


def compare(fn: str, low: str, high: str) -> str:
    return f'%c1 = elementwise({low}, {high}) {{fn="{fn}"}} : bool[u]\n'


def left(body: str) -> str:
    program = make_program(LOOP.format(body=body))
    return "\n".join(body_after(settle_conditions, program))


PLUS = '%one = full() {value=1} : i32[u]\n%p = elementwise(%j, %one) {fn="add"} : i32[u]\n'
WIDE = "%w1 = cast(%j) {bitcast=false} : i64[u]\n"


@pytest.mark.parametrize(
    "body",
    [
        spread("%n") + compare("lt", "%j", "%e"),
        spread("%n") + compare("gt", "%e", "%j"),
        spread("%n") + compare("le", "%j", "%e"),
        spread("%n") + compare("ge", "%e", "%j"),
        spread("%n") + PLUS + compare("le", "%p", "%e"),
        spread("%l", "i64") + WIDE + compare("lt", "%w1", "%e"),
        # Where the tile begins is before the end as well.
        spread("%n") + spread("%k", name="%f1") + compare("lt", "%f1", "%e"),
    ],
)  # fmt: skip
def test_positions_are_before_the_end(body: str) -> None:
    text = left(body)
    assert "bool" not in text
    assert "%v = load(%x, none, [%j])" in text
    assert "where" not in text
    assert "store(%x, %v, none, [%j])" in text


@pytest.mark.parametrize(
    "body",
    [
        spread("%a") + compare("lt", "%j", "%e"),
        spread("%hundred") + compare("lt", "%j", "%e"),
        spread("%n") + compare("gt", "%j", "%e"),
        spread("%n") + compare("lt", "%e", "%j"),
        spread("%n") + compare("ne", "%j", "%e"),
        # One further than the last position.
        spread("%n") + PLUS + compare("lt", "%p", "%e"),
        # Twice as far.
        spread("%n") + '%p = elementwise(%j, %j) {fn="add"} : i32[u]\n' + compare("lt", "%p", "%e"),
        # Of small integers one more may be less.
        '%byte = cast(%n) {bitcast=false} : i8[]\n' + spread("%byte", "i8")
        + '%w1 = cast(%j) {bitcast=false} : i8[u]\n' + compare("lt", "%w1", "%e"),
        spread("%n")
        + '%w1 = cast(%e) {bitcast=false} : u8[u]\n%one = full() {value=1} : u8[u]\n'
        + '%w2 = elementwise(%w1, %one) {fn="add"} : u8[u]\n'
        + '%small = cast(%w2) {bitcast=false} : i32[u]\n' + compare("lt", "%j", "%small"),
        # Lanes of this loop that begin where the outer one does.
        spread("%hundred") + '%p = tile_index(%b) {block="u"} : i32[u]\n'
        + compare("lt", "%p", "%e"),
    ],
)  # fmt: skip
def test_other_conditions_stay(body: str) -> None:
    program = make_program(LOOP.format(body=body))
    assert settle_conditions(program) is program


def test_lanes_of_an_inner_loop_over_the_same_block_are_not_those_of_the_outer_one() -> None:
    inner = """
      loop([%zero], [%hundred], [], []) {blocks=["u"], slot=0} (%q: i32[]) {
        %v1 = load(%y, none, [%j]) : f32[u]
        store(%y, %v1, none, [%j])
        yield()
      }
    """
    body = inner + spread("%n") + compare("lt", "%j", "%e")
    program = make_program(LOOP.format(body=body))
    assert settle_conditions(program) is program


def test_a_condition_among_others_goes_alone() -> None:
    body = (
        spread("%n") + spread("%a", name="%g")
        + '%c2 = elementwise(%j, %e) {fn="lt"} : bool[u]\n'
        + '%c3 = elementwise(%j, %g) {fn="lt"} : bool[u]\n'
        + '%c1 = elementwise(%c2, %c3) {fn="and"} : bool[u]\n'
    )  # fmt: skip
    text = left(body)
    assert "load(%x, %c3, [%j])" in text
    assert "store(%x, %s, %c3, [%j])" in text
