"""Slots count loops, accesses and atomics in program order."""

from __future__ import annotations

from tests.passes.program_text import make_program
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.traversal import walk_function
from tilesmith.passes.accesses import number_slots


def test_slots_follow_program_order() -> None:
    program = make_program("""
        %v = load(%x, none, [%i]) : f32[t]
        loop([%zero], [%hundred], [], []) {blocks=["u"]} (%k: i32[]) {
          %p = load(%x, none, [%i]) : f32[t]
          loop([%zero], [%hundred], [], []) {blocks=["fixed"]} (%j: i32[]) {
            %old = atomic(%y, %p, none, [%i]) {kind="add"} : f32[t]
          }
          store(%y, %v, none, [%i])
        }
        loop([%zero], [%hundred], [], []) {blocks=["u"]} (%l: i32[]) {
          %old2 = atomic(%y, %v, none, [%i]) {kind="max"} : f32[t]
        }
        store(%x, %v, none, [%i])
    """)
    after = number_slots(program)
    slots = {
        kind: [op.slot for op in walk_function(after) if isinstance(op, kind)]
        for kind in (Grid, Loop, Load, Store, Atomic)
    }
    assert slots == {Grid: [0], Loop: [0, 1, 2], Load: [0, 1], Store: [2, 3], Atomic: [0, 1]}
    assert number_slots(after) is after
