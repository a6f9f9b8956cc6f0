"""Selections are dropped exactly where the value holds the selected constant anyway."""

from __future__ import annotations

import pytest

from tests.passes.program_text import body_after, make_program
from tilesmith.passes.masks import drop_idle_selections

# %v is loaded where %i < %n and nowhere else.
LOADED = """
    %n = load(%y, none, [%i]) : f32[t]
    %lengths = cast(%n) {bitcast=false} : i32[t]
    %within = elementwise(%i, %lengths) {fn="lt"} : bool[t]
    %other = elementwise(%lengths, %i) {fn="lt"} : bool[t]
    %both = elementwise(%within, %other) {fn="and"} : bool[t]
    %v = load(%x, %within, [%i]) : f32[t]
    %most = load(%x, %both, [%i]) : f32[t]
    %all = load(%x, none, [%i]) : f32[t]
    %o = full() {value=0.0} : f32[t]
    %m = full() {value=-0.0} : f32[t]
    %e = full() {value=1.0} : f32[t]
"""


def selections(body: str) -> int:
    text = f"{LOADED} {body} store(%x, %s, none, [%i])"
    return sum(
        'fn="where"' in line for line in body_after(drop_idle_selections, make_program(text))
    )


def select(condition: str, value: str, other: str = "%o", name: str = "%s") -> str:
    return f'{name} = elementwise({condition}, {value}, {other}) {{fn="where"}} : f32[t]\n'


def compute(fn: str, *args: str, name: str = "%z") -> str:
    return f'{name} = elementwise({", ".join(args)}) {{fn="{fn}"}} : f32[t]\n'


@pytest.mark.parametrize(
    "body",
    [
        select("%within", "%v"),
        # A mask of more conditions is false wherever one of them is.
        select("%within", "%most"),
        select("%other", "%most"),
        select("%both", "%most"),
        compute("mul", "%v", "%e") + select("%within", "%z"),
        compute("add", "%v", "%e") + select("%within", "%z", "%e"),
        compute("neg", "%v") + select("%within", "%z", "%m"),
        '%half = cast(%v) {bitcast=false} : bf16[t]\n%z = cast(%half) {bitcast=false} : f32[t]\n'
        + select("%within", "%z"),
        select("%other", "%v", name="%z") + select("%within", "%z"),
    ],
)  # fmt: skip
def test_lanes_that_hold_the_constant_are_not_selected_again(body: str) -> None:
    left = body.count('fn="where"') - 1
    assert selections(body) == left


@pytest.mark.parametrize(
    "body",
    [
        select("%within", "%all"),
        select("%other", "%v"),
        # Where not both hold, %v may be loaded all the same.
        select("%both", "%v"),
        select("%within", "%v", "%e"),
        select("%within", "%v", "%m"),
        compute("neg", "%v") + select("%within", "%z"),
        compute("add", "%v", "%e") + select("%within", "%z"),
        compute("mul", "%v", "%all") + select("%within", "%z"),
        # Not a constant that is known bit for bit.
        compute("exp", "%v") + select("%within", "%z", "%e"),
        "%w0 = cast(%v) {bitcast=true} : i32[t]\n%z = cast(%w0) {bitcast=false} : f32[t]\n"
        + select("%within", "%z"),
    ],
)
def test_other_selections_stay(body: str) -> None:
    assert selections(body) == 1


# %v is loaded as [t, u] where %i < %lengths; %line is what each row is compared with alone.
ROWS = """
    %k = arange() : i32[60]
    %n = load(%y, none, [%i]) : f32[t]
    %lengths = cast(%n) {bitcast=false} : i32[t]
    %line = elementwise(%i, %lengths) {fn="lt"} : bool[t]
    %rows = expand_dims(%i) {axes=[1]} : i32[t, 1]
    %limits = expand_dims(%lengths) {axes=[1]} : i32[t, 1]
    %within = elementwise(%rows, %limits) {fn="lt"} : bool[t, 1]
    %columns = expand_dims(%k) {axes=[0]} : i32[1, 60]
    %v = load(%w, %within, [%rows, %columns]) : f32[t, 60]
    %o = full() {value=0.0} : f32[t]
"""


@pytest.mark.parametrize(("kind", "left"), [("sum", 0), ("max", 1), ("prod", 1)])
def test_a_sum_of_zeros_is_zero_whichever_way_the_condition_is_laid_out(
    kind: str, left: int
) -> None:
    body = f"""
        {ROWS}
        %r = reduce(%v) {{axis=1, kind="{kind}"}} : f32[t]
        {select("%line", "%r")}
        store(%x, %s, none, [%i])
    """
    lines = body_after(drop_idle_selections, make_program(body))
    assert sum('fn="where"' in line for line in lines) == left


def test_a_sum_along_the_axis_of_the_condition_is_still_selected() -> None:
    body = f"""
        {LOADED}
        %r = reduce(%v) {{axis=0, kind="sum"}} : f32[]
        %r1 = expand_dims(%r) {{axes=[0]}} : f32[1]
        %z = broadcast(%r1) : f32[t]
        {select("%within", "%z")}
        store(%x, %s, none, [%i])
    """
    lines = body_after(drop_idle_selections, make_program(body))
    assert sum('fn="where"' in line for line in lines) == 1


def test_axes_of_one_tile_are_not_mistaken_for_each_other() -> None:
    body = f"""
        {LOADED}
        %down = expand_dims(%v) {{axes=[1]}} : f32[t, 1]
        %z = broadcast(%down) : f32[t, t]
        %across = expand_dims(%within) {{axes=[0]}} : bool[1, t]
        %c0 = broadcast(%across) : bool[t, t]
        %o2 = full() {{value=0.0}} : f32[t, t]
        %s = elementwise(%c0, %z, %o2) {{fn="where"}} : f32[t, t]
        %r = reduce(%s) {{axis=1, kind="sum"}} : f32[t]
        store(%x, %r, none, [%i])
    """
    lines = body_after(drop_idle_selections, make_program(body))
    assert sum('fn="where"' in line for line in lines) == 1
