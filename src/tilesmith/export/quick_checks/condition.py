"""Checks of a launch as one condition. Where it holds, none of them would raise.

Calls of checking functions take more time than what they compare. The condition may be false where
checks have nothing to say (they then run, and decide), never the other way round.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tilesmith.compiler.launch_guards.checks import REQUIRE, REQUIRE_TENSOR

INDENT = "    "


def guarded_lines(statements: Sequence[str]) -> Iterator[str]:
    """The checks, with the condition before those that it can stand for."""
    pairs = [(statement, _condition(statement)) for statement in statements]
    known = [condition for _, condition in pairs if condition]
    if known:
        yield "if not ("
        for number, condition in enumerate(known):
            yield f"{INDENT}{'and ' * (number > 0)}{condition}"
        yield "):"
        yield from (f"{INDENT}{statement}" for statement, condition in pairs if condition)
    yield from (statement for statement, condition in pairs if not condition)


def _condition(statement: str) -> str:
    """What must hold for a check to be content; empty where it has to be asked."""
    call = ast.parse(statement, mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    name = call.func.id.removesuffix("_of_module")
    if name == REQUIRE_TENSOR:
        return _tensor_condition(call.args)
    return _value_condition(*call.args[1:]) if name == REQUIRE else ""


def _tensor_condition(given: Sequence[ast.expr]) -> str:
    tensor, dtype, sizes, strides = map(ast.unparse, given[1:5])
    if "None" in sizes + strides:
        return ""
    parts = f"{tensor}.shape == {sizes} and {tensor}.stride() == {strides}"
    return f"{tensor}.dtype is {dtype} and {parts}"


def _value_condition(given: ast.expr, expected: ast.expr) -> str:
    text, wanted = ast.unparse(given), ast.unparse(expected)
    if isinstance(given, ast.Tuple) and wanted.endswith(f",) * {len(given.elts)}"):
        return " == ".join(map(ast.unparse, given.elts))
    if not isinstance(expected, ast.Constant):
        return ""
    if expected.value is None or isinstance(expected.value, bool):
        return f"({text}) is {wanted}"
    kind = type(expected.value).__name__
    if kind not in ("int", "str"):  # 0.0 and -0.0 are equal, and NaN is not
        return ""
    if isinstance(given, ast.Name):
        return f"type({text}) is {kind} and {text} == {wanted}"
    is_number = isinstance(given, ast.BinOp) and isinstance(given.op, ast.Mod)
    return f"({text}) == {wanted}" if is_number else ""
