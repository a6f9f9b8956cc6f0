"""Invariant computations move in front of loops; what depends on the loop or may trap stays."""

from __future__ import annotations

from tests.passes.program_text import body_after, make_program
from tilesmith.passes.expressions import hoist_loop_invariants


def lines_before_loop(body: str) -> list[str]:
    lines = body_after(hoist_loop_invariants, make_program(body))
    start = next(i for i, line in enumerate(lines) if "loop(" in line or "while(" in line)
    return [line.split(" = ")[0] for line in lines[:start]]


def loop(inside: str) -> str:
    header = 'loop([%zero], [%hundred], [], []) {blocks=["u"]} (%k: i32[])'
    return f"%v = load(%x, none, [%i]) : f32[t]\n{header} {{ {inside} }}"


def test_chain_of_invariant_ops_leaves_the_loop() -> None:
    body = loop("""
        %p = elementwise(%v) {fn="exp"} : f32[t]
        %q = elementwise(%p, %p) {fn="mul"} : f32[t]
        %kk = elementwise(%k, %a) {fn="add"} : i32[]
        %e = full() {value=1.0} : f32[]
        store(%y, %q, none, [%i])
        store(%y, %e, none, [%kk])
    """)
    assert lines_before_loop(body) == ["%v", "%p", "%q", "%e"]


def test_invariant_ops_leave_every_loop_they_can() -> None:
    body = loop("""
        loop([%k], [%hundred], [], []) {blocks=["fixed"]} (%j: i32[]) {
          %p = elementwise(%v) {fn="exp"} : f32[t]
          %kk = elementwise(%k, %a) {fn="add"} : i32[]
          %jj = elementwise(%j, %kk) {fn="add"} : i32[]
          store(%y, %f, none, [%jj])
          store(%y, %p, none, [%i])
        }
    """)
    lines = body_after(hoist_loop_invariants, make_program(body))
    names = [line.split(" = ")[0] for line in lines if " = " in line]
    assert names == ["%v", "%p", "%kk", "%jj"]
    assert [i for i, line in enumerate(lines) if "loop(" in line] == [2, 4]


def test_axis_of_the_loops_own_block_keeps_an_op_inside() -> None:
    body = loop("""
        %ones = full() {value=1.0} : f32[u]
        %n = reduce(%ones) {axis=0, kind="sum"} : f32[]
        store(%y, %n, none, [%k])
    """)
    assert lines_before_loop(body) == ["%v"]


def test_nothing_leaves_a_branch_and_loads_stay() -> None:
    body = loop("""
        if(%c) () {
          %p = elementwise(%v) {fn="exp"} : f32[t]
          store(%y, %p, none, [%i])
        } () { }
        %l = load(%x, none, [%zero]) : f32[]
        store(%y, %l, none, [%zero])
    """)
    assert lines_before_loop(body) == ["%v"]


def test_integer_division_moves_only_when_it_cannot_trap() -> None:
    body = loop("""
        %seven = full() {value=7} : i32[]
        %p = elementwise(%a, %a) {fn="floordiv"} : i32[]
        %q = elementwise(%a, %seven) {fn="mod"} : i32[]
        store(%y, %f, none, [%p])
        store(%y, %f, none, [%q])
    """)
    assert lines_before_loop(body) == ["%v", "%seven", "%q"]


def test_while_loops_are_treated_alike() -> None:
    body = """
        %v = load(%x, none, [%i]) : f32[t]
        %n = while(%a) : i32[] (%m: i32[]) {
          %limit = elementwise(%a, %a) {fn="mul"} : i32[]
          %go = elementwise(%m, %limit) {fn="lt"} : bool[]
          yield(%go)
        } (%m2: i32[]) {
          %step = elementwise(%a, %a) {fn="add"} : i32[]
          %m3 = elementwise(%m2, %step) {fn="add"} : i32[]
          yield(%m3)
        }
        store(%y, %f, none, [%n])
    """
    assert lines_before_loop(body) == ["%v", "%limit", "%step"]
