"""Partial tiles are found from constants, block sizes and enclosing tiles."""

from __future__ import annotations

import pytest

from tests.passes.program_text import make_program
from tilesmith.analysis.affine import find_partial_axes
from tilesmith.ir.ops.control_flow import Grid, Loop


def partial(body: str, t: int = 10, u: int = 4, bounds: str = "") -> list[tuple[bool, ...]]:
    found = find_partial_axes(make_program(body, bounds), {"t": t, "u": u})
    return [axes for op, axes in found.items() if isinstance(op, (Grid, Loop))]


@pytest.mark.parametrize(
    ("size", "expected"), [(1, False), (10, False), (99, True), (100, False), (101, True)]
)
def test_constant_range(size: int, expected: bool) -> None:
    assert partial("", t=size) == [(expected,)]


NESTED = """
    %size = block_size() {block="t"} : i32[]
    %stop = elementwise(%b, %size) {fn="add"} : i32[]
    %end = elementwise(%stop, %hundred) {fn="minimum"} : i32[]
    loop([%b], [%end], [], []) {blocks=["u"]} (%k: i32[]) {
        store(%x, %f, none, [%k])
    }
"""


@pytest.mark.parametrize(
    ("t", "u", "expected"),
    [
        (20, 4, (False, False)),
        (20, 8, (False, True)),
        # The outer tile is partial, but its length is a multiple of the inner one all the same.
        (64, 4, (True, False)),
        (64, 32, (True, True)),
        (100, 100, (False, False)),
        (100, 50, (False, False)),
    ],
)
def test_tile_of_a_tile(t: int, u: int, expected: tuple[bool, bool]) -> None:
    assert partial(NESTED, t, u) == [(expected[0],), (expected[1],)]


def loop(begin: str, end: str) -> str:
    return f"""
    loop([{begin}], [{end}], [], []) {{blocks=["u"]}} (%k: i32[]) {{
        store(%x, %f, none, [%k])
    }}
    """


def test_begin_counts() -> None:
    four = "%four = full() {value=4} : i32[]\n"
    assert partial(four + loop("%four", "%hundred"), u=8) == [(False,), (False,)]
    assert partial(loop("%zero", "%hundred"), u=8) == [(False,), (True,)]


def test_runtime_bounds_may_be_partial_unless_they_cancel() -> None:
    assert partial(loop("%zero", "%a"), u=4) == [(False,), (True,)]
    assert partial(loop("%zero", "%a"), u=1) == [(False,), (False,)]
    stop = '%size = full() {value=8} : i32[]\n%stop = elementwise(%a, %size) {fn="add"} : i32[]\n'
    assert partial(stop + loop("%a", "%stop"), u=8) == [(False,), (False,)]
    assert partial(stop + loop("%a", "%stop"), u=16) == [(False,), (True,)]


def test_multiples_of_runtime_values_are_known() -> None:
    stop = '%size = full() {value=8} : i32[]\n%stop = elementwise(%a, %size) {fn="mul"} : i32[]\n'
    assert partial(stop + loop("%zero", "%stop"), u=8) == [(False,), (False,)]
    assert partial(stop + loop("%zero", "%stop"), u=16) == [(False,), (True,)]


def test_steps_without_blocks_are_never_partial() -> None:
    body = """
        %three = full() {value=3} : i32[]
        loop([%zero], [%hundred], [%three], []) {blocks=[""]} (%k: i32[]) {
            store(%x, %f, none, [%k])
        }
    """
    assert partial(body) == [(False,), (False,)]
