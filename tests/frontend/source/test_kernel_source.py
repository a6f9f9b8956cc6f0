"""A kernel's source split at its device loops, with the lines of the file."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import pytest

import tilesmith.language as hl
from tilesmith import exc
from tilesmith.frontend.source.kernel_source import find_loops, read_kernel


def texts(statements: Sequence[ast.AST]) -> list[str]:
    return [ast.unparse(statement) for statement in statements]


def plain(x, out):
    n = x.size(0)
    for t in hl.tile(n):
        out[t] = x[t]
    hl.barrier()
    for t in hl.grid(n):
        out[t] = x[t]
    return out


def test_host_code_stands_before_and_after_the_loops() -> None:
    source = find_loops(read_kernel(plain))
    assert texts(source.before) == ["n = x.size(0)"]
    assert [type(s).__name__ for s in source.loops] == ["For", "Expr", "For"]
    assert texts(source.after) == ["return out"]


def test_lines_are_those_of_the_file() -> None:
    source = find_loops(read_kernel(plain))
    _, first = inspect.getsourcelines(plain)
    assert source.location(source.loops[0]).line == first + 2
    assert source.location(source.loops[0]).file == __file__
    assert source.location(source.before[0]).text == "n = x.size(0)"


def test_a_nested_function_keeps_its_columns() -> None:
    def indented(x):
        for t in hl.tile(x.size(0)):
            x[t] = 0

    source = find_loops(read_kernel(indented))
    assert source.loops[0].col_offset == 8
    assert source.location(source.loops[0]).text.startswith("for t in hl.tile(x.size(0))")


def test_a_fresh_tree_may_be_changed() -> None:
    source = find_loops(read_kernel(plain))
    copy = source.fresh()
    copy.tree.body.clear()
    assert len(source.tree.body) == 5


def over_a_list(x, y, out):
    for source, place in ((x, 0), (y + 1, 1)):
        for t in hl.tile(x.size(0)):
            out[place, t] = source[t]


def test_host_loops_over_a_literal_are_written_out_and_computed_items_named() -> None:
    source = find_loops(read_kernel(over_a_list))
    assert texts(source.before) == ["__item_0_1_0 = y + 1"]
    assert [texts(loop.body) for loop in source.loops] == [  # type: ignore[attr-defined]
        ["out[0, t] = x[t]"],
        ["out[1, t] = __item_0_1_0[t]"],
    ]


def over_a_range(x, out):
    for i in range(2):
        for t in hl.tile(x.size(0)):
            out[i, t] = x[t]


def rebinds_the_variable(x, out):
    for a in (x, x):
        for t in hl.tile(x.size(0)):
            out[t] = a[t]
        a = out  # noqa: PLW2901


def statement_between(x, out):
    for t in hl.tile(x.size(0)):
        out[t] = x[t]
    out.zero_()
    for t in hl.tile(x.size(0)):
        out[t] = x[t]


def no_loop(x):
    return x


def moved(lines: int) -> Callable[..., Any]:
    """A function whose file was edited above it after the import."""
    first_line = max(1, no_loop.__code__.co_firstlineno + lines)
    return FunctionType(no_loop.__code__.replace(co_firstlineno=first_line), globals())


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (over_a_range, exc.NestedGridLoop),
        (rebinds_the_variable, exc.NestedGridLoop),
        (statement_between, exc.TopLevelStatementBetweenLoops),
        (no_loop, exc.NoDeviceLoopsInKernel),
        (eval("lambda x: x"), exc.SourceNotAvailable),
        (moved(-1), exc.SourceChanged),
        (moved(-9), exc.SourceChanged),
        (moved(-(10**6)), exc.SourceChanged),
    ],
)
def test_what_cannot_be_split_is_an_error(
    function: Callable[..., Any], error: type[exc.BaseError]
) -> None:
    with pytest.raises(error):
        find_loops(read_kernel(function))
