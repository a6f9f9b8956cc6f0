"""What no effect depends on disappears, and nothing else does."""

from __future__ import annotations

from tests.ir_parser import parse_function
from tests.passes.program_text import body_after, make_program
from tilesmith.ir.verifier import verify_function
from tilesmith.passes.eliminate_dead_code import eliminate_dead_code


def test_unused_loads_and_pure_ops_go() -> None:
    program = make_program("""
        %v = load(%x, none, [%i]) : f32[t]
        %e = elementwise(%v) {fn="exp"} : f32[t]
        %d = load(%y, none, [%i]) : f32[t]
        store(%y, %v, none, [%i])
    """)
    assert [line.split("(")[0] for line in body_after(eliminate_dead_code, program)] == [
        "%v = load",
        "store",
    ]


def test_atomics_stay_though_their_results_are_unused() -> None:
    program = make_program("""
        %v = load(%x, none, [%i]) : f32[t]
        %old = atomic(%y, %v, none, [%i]) {kind="add"} : f32[t]
    """)
    assert len(body_after(eliminate_dead_code, program)) == 2


def test_carried_value_used_only_by_itself_leaves_the_loop() -> None:
    program = make_program("""
        %n = full() {value=0} : i32[]
        %v = load(%x, none, [%i]) : f32[t]
        %r, %count = loop([%zero], [%hundred], [], [%v, %n]) {blocks=["u"]} : f32[t], i32[] \
(%k: i32[], %acc: f32[t], %m: i32[]) {
          %acc2 = elementwise(%acc, %acc) {fn="add"} : f32[t]
          %m2 = elementwise(%m, %a) {fn="add"} : i32[]
          yield(%acc2, %m2)
        }
        store(%y, %r, none, [%i])
    """)
    text = "\n".join(body_after(eliminate_dead_code, program))
    assert "%r = loop([%zero], [%hundred], [], [%v])" in text
    assert "%m2" not in text
    assert "yield(%acc2)" in text


def test_carried_values_that_feed_a_live_one_stay() -> None:
    program = make_program("""
        %v = load(%x, none, [%i]) : f32[t]
        %w0 = load(%y, none, [%i]) : f32[t]
        %r, %s = loop([%zero], [%hundred], [], [%v, %w0]) {blocks=["u"]} : f32[t], f32[t] \
(%k: i32[], %p: f32[t], %q: f32[t]) {
          yield(%q, %p)
        }
        store(%y, %r, none, [%i])
    """)
    assert eliminate_dead_code(program).body is program.body


def test_while_loop_keeps_what_its_condition_needs() -> None:
    program = make_program("""
        %v = load(%x, none, [%i]) : f32[t]
        %r, %n, %dead = while(%v, %a, %zero) : f32[t], i32[], i32[] \
(%p: f32[t], %q: i32[], %z: i32[]) {
          %go = elementwise(%q, %zero) {fn="gt"} : bool[]
          yield(%go)
        } (%p2: f32[t], %q2: i32[], %z2: i32[]) {
          %p3 = elementwise(%p2, %p2) {fn="add"} : f32[t]
          %one = full() {value=1} : i32[]
          %q3 = elementwise(%q2, %one) {fn="sub"} : i32[]
          %z3 = elementwise(%z2, %one) {fn="sub"} : i32[]
          yield(%p3, %q3, %z3)
        }
        store(%y, %r, none, [%i])
    """)
    text = "\n".join(body_after(eliminate_dead_code, program))
    assert "while(%v, %a)" in text
    assert "yield(%p3, %q3)" in text
    assert "%z3" not in text


def test_unused_results_leave_a_branch_that_stays_for_its_effect() -> None:
    program = make_program("""
        %v = load(%x, none, [%i]) : f32[t]
        %r, %s = if(%c) : f32[t], f32[t] () {
          store(%y, %v, none, [%i])
          yield(%v, %v)
        } () {
          %e = elementwise(%v) {fn="exp"} : f32[t]
          yield(%v, %e)
        }
        store(%x, %r, none, [%i])
    """)
    text = "\n".join(body_after(eliminate_dead_code, program))
    assert "%r = if(%c) : f32[t]" in text
    assert "exp" not in text
    assert text.count("yield(%v)") == 2


def test_loop_without_effect_or_used_result_goes() -> None:
    program = make_program("""
        %v = load(%x, none, [%i]) : f32[t]
        %r = loop([%zero], [%hundred], [], [%v]) {blocks=["u"]} : f32[t] \
(%k: i32[], %p: f32[t]) {
          yield(%p)
        }
        store(%y, %v, none, [%i])
    """)
    assert len(body_after(eliminate_dead_code, program)) == 2


def test_loop_that_waits_for_another_program_stays() -> None:
    program = make_program("""
        while() () {
          %flag = load(%y, none, [%zero]) : f32[]
          %go = elementwise(%flag, %f) {fn="eq"} : bool[]
          yield(%go)
        } () { }
        while() () {
          yield(%c)
        } () { }
        store(%x, %f, none, [%zero])
    """)
    text = "\n".join(body_after(eliminate_dead_code, program))
    assert text.count("while") == 1
    assert "%flag" in text


def test_parameters_stay_when_used_or_named_by_what_is_used() -> None:
    text = """func @f {
  param %x: tensor<f32[n, 4], strides=[s, 1], alias=0> from "x"
  param %y: tensor<f32[m], strides=[1], alias=1> from "y"
  param %n: i32[] from "x.size(0)"
  param %s: i64[] from "x.stride(0)"
  param %m: i32[] from "y.size(0)"
  param %k: i32[] from "z.size(0)"
  param %alpha: f32[] from "alpha"
  block t {slot=0}
  size k {hint=5}
  %zero = full() {value=0} : i32[]
  %three = full() {value=3} : i32[]
  grid([%zero], [%three]) {blocks=["t"]} (%b: i32[]) {
    %rows = arange() : i32[k]
    %v = full() {value=1.0} : f32[k]
    store(%x, %v, none, [%rows, %zero])
  }
}
"""
    after = eliminate_dead_code(parse_function(text))
    verify_function(after)
    assert [parameter.value.name for parameter in after.parameters] == ["x", "n", "s", "k"]
