"""One condition for the checks of a launch: calls that fit ask it and nothing else.

Calls of checking functions take more time than what they compare. The condition may be false where
checks have nothing to say (they then run, and decide), never the other way round.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from typing_extensions import override

from tilesmith.compiler.launch_guards.checks import REQUIRE, REQUIRE_TENSOR

_INDENT = "    "
_COUNTS = ("size", "stride", "cdiv", "next_power_of_2", "num_sms")


@dataclass(frozen=True)
class Known:
    """What a call has found out before the condition."""

    shapes: Set[str] = frozenset()
    """Tensors whose sizes are constants, and were compared."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that hold the values of expressions."""


def guarded_lines(
    statements: Sequence[str], known: Known | None = None, otherwise: str = ""
) -> Iterator[str]:
    """The checks, after one condition: where it holds, none of those in it would raise.

    Args:
        statements: the checks.
        known: what the condition need not ask for.
        otherwise: a statement that makes all checks, in place of those of the condition.
    """
    known = known or Known()
    pairs = [(statement, _condition(statement, known)) for statement in statements]
    if any(s.startswith(REQUIRE_TENSOR) and not condition for s, condition in pairs):
        # A tensor whose rank nobody has looked at may lack the axis that is asked for.
        pairs = [(s, "" if ".size(" in c or ".stride(" in c else c) for s, c in pairs]
    asked = [condition for _, condition in pairs if condition]
    if asked:
        yield "if not ("
        for number, condition in enumerate(asked):
            yield f"{_INDENT}{'and ' * (number > 0)}{renamed(condition, known.names)}"
        yield "):"
        slow = [statement for statement, condition in pairs if condition]
        yield from (f"{_INDENT}{statement}" for statement in ([otherwise] if otherwise else slow))
    yield from (statement for statement, condition in pairs if not condition)


class _Renaming(ast.NodeTransformer):
    """Puts variables in place of the calls whose values they hold."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    @override
    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = self._names.get(ast.unparse(node))
        return self.generic_visit(node) if name is None else ast.Name(name)


def renamed(condition: str, names: Mapping[str, str]) -> str:
    """An expression with variables in place of calls."""
    if not names:
        return condition
    return ast.unparse(_Renaming(names).visit(ast.parse(condition, mode="eval")))


def _condition(statement: str, known: Known) -> str:
    """What must hold for a check to be content; empty where it has to be asked."""
    call = ast.parse(statement, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    name = call.func.id.removesuffix("_of_module")
    if name == REQUIRE_TENSOR:
        return _tensor_condition(call.args, known)
    return _value_condition(*call.args[1:]) if name == REQUIRE else ""


def _tensor_condition(given: Sequence[ast.expr], known: Known) -> str:
    name, dtype, sizes, strides = map(ast.unparse, given[1:5])
    head = f"{name}.dtype is {dtype}"
    counts, steps = ast.literal_eval(given[3]), ast.literal_eval(given[4])
    if None not in (*counts, *steps):
        shape = "" if name in known.shapes else f" and {name}.shape == {sizes}"
        if min(counts, default=0) > 1 and _has_no_gaps(counts, steps):
            return f"{head}{shape} and {name}.is_contiguous()"  # half the time of strides
        return f"{head}{shape} and {name}.stride() == {strides}"
    # The stride of an axis of one element is anything, also in a tensor without gaps.
    is_last_known = steps[-1] is None or (steps[-1], counts[-1]) == (1, None)
    is_free = set(steps[:-1]) <= {None} and is_last_known
    if not is_free or len(given) < 6:
        return ""
    # Runtime sizes of a tensor without gaps: its length says how far offsets reach.
    each = [f"{name}.size({i}) {'> 1' if n is None else f'== {n}'}" for i, n in enumerate(counts)]
    whole = f"{name}.is_contiguous() and {name}.numel() <= {ast.unparse(given[5])}"
    return " and ".join([head, f"{name}.dim() == {len(each)}", *each, whole])


def _has_no_gaps(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides)):
        if stride != expected:
            return False
        expected *= size
    return True


def _value_condition(given: ast.expr, expected: ast.expr) -> str:
    text, wanted = ast.unparse(given), ast.unparse(expected)
    if isinstance(given, ast.Tuple) and wanted.endswith(f",) * {len(given.elts)}"):
        return _on_one_gpu([ast.unparse(device).removesuffix(".device") for device in given.elts])
    if wanted.startswith("torch."):
        return f"{text} is {wanted}"
    if not isinstance(expected, ast.Constant):
        return f"{text} == {wanted}" if _is_count(given) and _is_count(expected) else ""
    if expected.value is None or isinstance(expected.value, bool):
        return f"({text}) is {wanted}"
    kind = type(expected.value).__name__
    if kind not in ("int", "str") and not (kind == "float" and expected.value):
        return ""  # 0.0 and -0.0 are equal
    if isinstance(given, ast.Name):
        return f"type({text}) is {kind} and {text} == {wanted}"
    return f"({text}) == {wanted}" if _is_count(given) else ""


def _on_one_gpu(tensors: Sequence[str]) -> str:
    """Only code for GPUs asks this. Numbers are compared faster than devices, which are objects."""
    each = [f"{name}.is_cuda" for name in tensors]
    return " and ".join([*each, " == ".join(f"{name}.get_device()" for name in tensors)])


def _is_count(asked: ast.expr) -> bool:
    """Whether an expression of checks is an integer, whatever it is asked of."""
    if isinstance(asked, ast.Call):
        return bool(asked.args) and ast.unparse(asked.func).rpartition(".")[2] in _COUNTS
    return isinstance(asked, ast.BinOp) and isinstance(asked.op, ast.Mod)
