"""Which accesses of one program must keep their order."""

from __future__ import annotations

import pytest

from tests.passes.program_text import make_program
from tilesmith.analysis.memory_conflicts import (
    Access,
    accesses_in,
    is_disjoint,
    is_same_place,
    must_order,
)
from tilesmith.ir.traversal import definitions

POSITIONS = """
    %one = full() {value=1} : i32[t]
    %two = full() {value=2} : i32[t]
    %even = elementwise(%i, %two) {fn="mul"} : i32[t]
    %odd = elementwise(%even, %one) {fn="add"} : i32[t]
    %next = elementwise(%i, %one) {fn="add"} : i32[t]
    %n = arange() : i32[8]
    %eight = full() {value=8} : i32[8]
    %behind = elementwise(%n, %eight) {fn="add"} : i32[8]
    %v = load(%y, none, [%i]) : f32[t]
    %u = load(%y, none, [%n]) : f32[8]
"""


def last_two(body: str) -> tuple[Access, Access]:
    function = make_program(POSITIONS + body)
    *_, first, second = accesses_in(function.body, definitions(function.body))
    return first, second


def store(index: str, value: str = "%v", tensor: str = "%x") -> str:
    return f"store({tensor}, {value}, none, [{index}])\n"


def load(index: str, tensor: str = "%x", shape: str = "t") -> str:
    return f"%z = load({tensor}, none, [{index}]) : f32[{shape}]\n"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (store("%i"), load("%i"), True),
        (store("%i"), store("%i"), False),
        (load("%i"), store("%i"), False),
        (load("%i"), load("%next").replace("%z", "%again"), False),
        (load("%next"), store("%i"), True),
        (store("%even"), load("%odd"), False),
        (store("%n", "%u"), load("%behind", shape="8"), False),
        (store("%i"), load("%i", "%y"), False),
    ],
    ids=[
        "load after store", "same lanes store twice", "store after load", "loads only",
        "neighbours", "even and odd", "one behind the other", "another tensor",
    ],
)  # fmt: skip
def test_order_among_threads(first: str, second: str, expected: bool):
    assert must_order(*last_two(first + second)) is expected


def test_lanes_of_equal_indices_touch_the_same_place():
    assert is_same_place(*last_two(store("%i") + load("%i")))
    assert not is_same_place(*last_two(store("%i") + load("%next")))


def test_residues_and_intervals_are_disjoint():
    assert is_disjoint(*last_two(store("%even") + load("%odd")))
    assert is_disjoint(*last_two(store("%n", "%u") + load("%behind", shape="8")))
    assert not is_disjoint(*last_two(store("%i") + load("%next")))


def test_atomics_of_one_kind_commute():
    def add(kind: str) -> str:
        return f'%{kind} = atomic(%x, %v, none, [%i]) {{kind="{kind}"}} : f32[t]\n'

    assert not must_order(*last_two(add("add") + add("add").replace("%add", "%again")))
    assert must_order(*last_two(add("add") + add("max")))
