"""Device code after rewriting: loops and branches as functions of the names they change."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tilesmith.frontend.source.functionalise import Functionaliser, rebind_updated_names


def rewritten(text: str, *host: str) -> str:
    statements = Functionaliser(host).block(ast.parse(dedent(text)).body)
    return ast.unparse(ast.Module(statements, []))


def same(text: str, expected: str) -> bool:
    return text == ast.unparse(ast.parse(dedent(expected)))


def test_a_loop_carries_what_its_body_changes() -> None:
    text = rewritten("for t in hl.tile(n):\n    acc = acc + x[t]", "n", "x", "acc")
    assert same(
        text,
        """
        def __body_1(__item, acc):
            t = __item
            acc = __ts.named('acc', acc + x[t])
            return (acc,)
        acc, = __ts.run_for(hl.tile(n), __body_1, ('acc',), (acc,), ('t',), {})
        """,
    )


def test_a_name_first_bound_inside_is_marked_as_unbound_before() -> None:
    text = rewritten("for t in hl.tile(n):\n    y = x[t]", "n", "x")
    assert "(__ts.Unbound('y'),)" in text


def test_a_tuple_target_is_unpacked_in_the_body() -> None:
    text = rewritten("for t, u in hl.tile(n):\n    x[t, u] = 0", "n", "x")
    assert "t, u = __ts.unpack(__item, 2)" in text
    assert "('t', 'u'), {})" in text


def test_both_arms_of_a_branch_return_the_same_names() -> None:
    text = rewritten("if c:\n    a = 1\nelse:\n    b = 2", "c")
    assert same(
        text,
        """
        def __then_1(a, b):
            a = __ts.named('a', 1)
            return (a, b)
        def __else_2(a, b):
            b = __ts.named('b', 2)
            return (a, b)
        a, b = __ts.run_if(c, __then_1, __else_2, ('a', 'b'),
                           (__ts.Unbound('a'), __ts.Unbound('b')), {})
        """,
    )


def test_a_while_has_its_condition_as_a_function() -> None:
    text = rewritten("while i < n:\n    i += 1", "n", "i")
    assert "def __condition_1(i):\n    return i < n" in text
    assert "(i,), {})" in text


def test_device_names_that_are_only_read_are_handed_over_too() -> None:
    text = rewritten(
        "for t in hl.tile(n):\n    k = 1\n    for u in hl.tile(n):\n        x[u] = k", "n"
    )
    assert "'k': k}" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y = a and b or c", "__ts.any_of(lambda: __ts.all_of(lambda: a, lambda: b), lambda: c)"),
        ("y = not a", "__ts.negate(a)"),
        ("y = -a", "-a"),
        ("y = p if c else q", "__ts.choose(c, lambda: p, lambda: q)"),
        ("y = a < b <= c", "__ts.compare_chain(('Lt', 'LtE'), a, b, c)"),
        ("y = a < b", "a < b"),
        ("y = ops.associative_scan", "__ts.replaced(ops.associative_scan)"),
    ],
)
def test_expressions(text: str, expected: str) -> None:
    assert rewritten(text) == f"y = __ts.named('y', {expected})"


def test_made_up_calls_stand_on_the_line_of_their_statement() -> None:
    tree = ast.parse("x = 0\nif (c and\n        d):\n    x = 1")
    statements = Functionaliser(["c", "d"]).block(tree.body)
    assert {statement.lineno for statement in statements} == {1, 2}
    made_up = [node for node in ast.walk(statements[-1]) if _is_made_up_call(node)]
    assert made_up
    assert all(getattr(node, "end_lineno", None) == 2 for node in made_up)


def _is_made_up_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and "run_if" in ast.unparse(node.func)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.add_(1)", "a = __ts.updated(a, a.add_(1))"),
        ("b = a.add_(1)", "b = a = __ts.updated(a, a.add_(1))"),
        ("a.add_(1).mul_(2)", "a = __ts.updated(a, a.add_(1).mul_(2))"),
        ("x[t].add_(1)", "x[t] = __ts.updated(x[t], x[t].add_(1))"),
        ("h.add_(1)", "h.add_(1)"),
        ("a.add(1)", "a.add(1)"),
        ("a.__add__(1)", "a.__add__(1)"),
    ],
)
def test_in_place_methods_rebind_local_names_and_items(text: str, expected: str) -> None:
    made = rebind_updated_names(ast.parse(text).body, {"a", "b"}, "__ts")
    assert [ast.unparse(statement) for statement in made] == [expected]
