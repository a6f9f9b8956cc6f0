"""Jumps become branches: the rewritten code, run as plain Python, does what the original did."""

from __future__ import annotations

import ast
import textwrap
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.frontend.source.random_jumps import programs
from tilesmith.frontend.source.rewriting.jumps import without_early_returns, without_jumps
from tilesmith.frontend.source.rewriting.patterns import without_match

RUNTIME = SimpleNamespace(until=lambda flag, iterator: iterator)


def run(source: str, limit: int, *, is_rewritten: bool) -> tuple[Any, list[Any]]:
    """What ``f(limit, log)`` returns, and what it logs."""
    module = ast.parse(textwrap.dedent(source))
    function = module.body[0]
    assert isinstance(function, ast.FunctionDef)
    if is_rewritten:
        body = without_match(function.body, lambda _: pytest.fail("a pattern was refused"))
        function.body = without_early_returns(body, "runtime")
    scope: dict[str, Any] = {"runtime": RUNTIME}
    exec(compile(ast.fix_missing_locations(module), "f", "exec"), scope)
    log: list[Any] = []
    return scope["f"](limit, log), log


@given(source=programs(), limit=st.integers(0, 4))
def test_rewritten_programs_do_the_same(source: str, limit: int) -> None:
    assert run(source, limit, is_rewritten=True) == run(source, limit, is_rewritten=False)


@given(source=programs(), limit=st.integers(0, 4))
def test_nothing_that_jumps_is_left(source: str, limit: int) -> None:
    module = ast.parse(source)
    function = module.body[0]
    assert isinstance(function, ast.FunctionDef)
    body = without_early_returns(function.body, "runtime")
    nodes = [node for statement in body for node in ast.walk(statement)]
    assert not any(isinstance(node, (ast.Break, ast.Continue)) for node in nodes)
    returns = [node for node in nodes if isinstance(node, ast.Return)]
    assert returns == [body[-1]] or not returns


def test_a_condition_is_not_read_again_after_a_break() -> None:
    source = """
    def f(limit, log):
        items = [1, 2, 3]
        i = 0
        while items[i] > 0:
            i += 1
            if i == len(items):
                break
        return i
    """
    assert run(source, 0, is_rewritten=True) == (3, [])


def test_loops_without_jumps_stay_as_they_are() -> None:
    source = "for i in x:\n    if i:\n        a = 1\n"
    (statement,) = without_jumps(ast.parse(source).body, "runtime")
    assert ast.unparse(statement) == source.rstrip()


def test_patterns_become_branches() -> None:
    source = """
    def f(limit, log):
        match (limit, 7):
            case (0, other):
                return other
            case (1 | 2, _) if limit == 2:
                log.append("two")
            case (1, _):
                return "one"
            case rest:
                return rest
        return "end"
    """
    for limit in range(4):
        assert run(source, limit, is_rewritten=True) == run(source, limit, is_rewritten=False)
