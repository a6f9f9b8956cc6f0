"""The roles that ops give the axes of their operands, one op of each form."""

from __future__ import annotations

import pytest

from tests.passes.program_text import make_program
from tilesmith.ir.axis_roles import FORMS, Role
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.catalog import OPS_BY_NAME
from tilesmith.ir.traversal import walk_function

TILE = """
    %j = arange() : i32[6]
    %i1 = expand_dims(%i) {axes=[1]} : i32[t, 1]
    %j1 = expand_dims(%j) {axes=[0]} : i32[1, 6]
    %v = load(%w, none, [%i1, %j1]) : f32[t, 6]
"""
CASES = {
    "elementwise": ('%z = elementwise(%v, %v) {fn="add"} : f32[t, 6]', ["k0 k1", "k0 k1"]),
    "mask": ("%z = mask(%v) {fill=0.0, axes=[1]} : f32[t, 6]", ["k0 k1"]),
    "full": ("%z = full() {value=0.0} : f32[t, 6]", []),
    "tile_index": ('%z = tile_index(%b) {block="t"} : i32[t]', [""]),
    "expand_dims": ("%z = expand_dims(%v) {axes=[0, 2]} : f32[1, t, 1, 6]", ["k1 k3"]),
    "broadcast": ("%z = broadcast(%i1) : i32[t, 6]", ["k0 r"]),
    "permute": ("%z = permute(%v) {order=[1, 0]} : f32[6, t]", ["k1 k0"]),
    "reshape": ("%z = reshape(%v) : f32[t, 2, 3]", ["m m"]),
    "join": ("%z = join(%v, %v) : f32[t, 6, 2]", ["k0 k1", "k0 k1"]),
    "select": ("%z = select(%v) {axis=1, position=2} : f32[t]", ["k0 i"]),
    "gather": (
        "%p = broadcast(%i1) : i32[t, 6]\n%z = gather(%v, %p) {axis=1} : f32[t, 6]",
        ["k0 i", "k0 k1"],
    ),
    "reduce": ('%z = reduce(%v) {axis=0, kind="sum"} : f32[6]', ["c k0"]),
    "scan": ('%z = scan(%v) {axis=0, kind="sum"} : f32[t, 6]', ["x0 k1"]),
    "sort": ("%p = broadcast(%j1) : i32[t, 6]\n%z = sort(%p) {axis=1} : i32[t, 6]", ["k0 x1"]),
    "dot": (
        "%u = permute(%v) {order=[1, 0]} : f32[6, t]\n%z = dot(%v, %u, none) : f32[t, t]",
        ["k0 c", "c k1"],
    ),
    "load": ("%z = load(%w, none, [%i1, %j1]) : f32[t, 6]", ["", "k0 r", "r k1"]),
    "store": ("store(%w, %v, none, [%i1, %j1])", ["", "k0 k1", "k0 r", "r k1"]),
    "if": ("%z = if(%c) : f32[t, 6] () { yield(%v) } () { yield(%v) }", [""]),
    "print": ('print(%v) {prefix="v"}', ["o o"]),
}
LETTERS = {Role.MIXED: "x"}


def spell(op: Operation) -> list[str]:
    """A letter for each role, with the result axis it goes to."""
    return [
        " ".join(
            LETTERS.get(role.role, role.role.value[0]) + ("" if role.to is None else str(role.to))
            for role in roles
        )
        for roles in op.axis_roles()
    ]


@pytest.mark.parametrize("name", CASES)
def test_roles_of_operand_axes(name: str):
    body, expected = CASES[name]
    ops = [op for op in walk_function(make_program(TILE + body)) if op.name == name]
    assert spell(ops[-1]) == expected


def test_every_form_has_an_example_here():
    assert {type(OPS_BY_NAME[name].form) for name in CASES} == set(FORMS)


def test_roles_that_occur_are_those_a_form_names():
    for name, (body, _) in CASES.items():
        for op in walk_function(make_program(TILE + body)):
            found = {role.role for roles in op.axis_roles() for role in roles}
            assert found <= op.form.roles, name


def test_a_batch_of_one_is_repeated_in_a_product():
    program = make_program("""
        %l = full() {value=1.0} : f32[t, 4, 6]
        %r = full() {value=1.0} : f32[1, 6, 5]
        %acc = full() {value=1.0} : f32[t, 4, 5]
        %z = dot(%l, %r, %acc) : f32[t, 4, 5]
    """)
    (dot,) = (op for op in walk_function(program) if op.name == "dot")
    assert spell(dot) == ["k0 k1 c", "r c k2", "k0 k1 k2"]


def test_operands_are_replaced_in_their_order():
    program = make_program(TILE + "store(%w, %v, none, [%i1, %j1])")
    (store,) = (op for op in walk_function(program) if op.name == "store")
    values = tuple(store.operand_values())
    swapped = store.with_operand_list((*values[:2], values[3], values[2]))
    assert tuple(swapped.operand_values()) == (*values[:2], values[3], values[2])
    assert store.with_operand_list(values).attributes() == store.attributes()
