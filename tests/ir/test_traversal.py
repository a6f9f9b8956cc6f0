"""The rule driver: replacement by values and ops, chains of rules, and rules without an end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.passes.program_text import body_lines, make_program
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.traversal import Definitions, Replacement, apply_rules
from tilesmith.ir.verifier import verify_function

BODY = """
    %v = load(%x, none, [%i]) : f32[t]
    %p = elementwise(%v) {fn="exp"} : f32[t]
    %q = elementwise(%p) {fn="log"} : f32[t]
    if(%c) () {
      %r = elementwise(%q) {fn="sin"} : f32[t]
      store(%y, %r, none, [%i])
    } () { }
"""


def rename(old: str, new: str):
    def rule(op: Operation, defined_by: Definitions) -> Replacement | None:
        is_match = isinstance(op, Elementwise) and op.fn == old
        return (replace(op, fn=new),) if is_match and isinstance(op, Elementwise) else None

    return rule


def log_of_exp(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Elementwise) or op.fn != "log":
        return None
    inner = defined_by(op.args[0])
    return inner.args[0] if isinstance(inner, Elementwise) and inner.fn == "exp" else None


def test_value_takes_the_place_of_an_op_in_nested_regions_too() -> None:
    after = apply_rules(make_program(BODY), [log_of_exp])
    verify_function(after)
    assert '%r = elementwise(%v) {fn="sin"} : f32[t]' in body_lines(after)


def test_rules_see_what_other_rules_made() -> None:
    body = BODY.replace("exp", "cos")
    after = apply_rules(
        make_program(body), [rename("cos", "tan"), rename("tan", "exp"), log_of_exp]
    )
    verify_function(after)
    assert '%r = elementwise(%v) {fn="sin"} : f32[t]' in body_lines(after)


def test_no_match_gives_the_same_object() -> None:
    program = make_program(BODY)
    assert apply_rules(program, [rename("tan", "exp")]) is program


def test_circular_rules_are_reported() -> None:
    with pytest.raises(RuntimeError, match="do not come to an end"):
        apply_rules(make_program(BODY), [rename("exp", "log"), rename("log", "exp")])
