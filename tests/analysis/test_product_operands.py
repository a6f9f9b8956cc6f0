"""How long a contracted axis must be follows from what is loaded for a product."""

from __future__ import annotations

import pytest

from tests.passes.kernel_texts import MATMUL, parse_kernel
from tilesmith.analysis.product_operands import (
    LEAST_CONTRACTED,
    LEAST_CONTRACTED_BYTES,
    has_loaded_bounds_inside,
    least_contracted,
    loads_behind,
)
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import definitions, walk_function


def dot_of(function: Function) -> Dot:
    (dot,) = (op for op in walk_function(function) if isinstance(op, Dot))
    return dot


def widened(source: str) -> Function:
    """The product with its right operand converted from what is loaded."""
    text = MATMUL.replace("tensor<bf16[70, 33]", f"tensor<{source}[70, 33]").replace(
        "%b = load(%y, none, [%i1, %c1]) : bf16[k, n]",
        f"%raw = load(%y, none, [%i1, %c1]) : {source}[k, n]\n%b = cast(%raw) : bf16[k, n]",
    )
    return parse_kernel(text)


@pytest.mark.parametrize(
    ("source", "expected"),
    [("f32", LEAST_CONTRACTED), ("i16", LEAST_CONTRACTED), ("i8", LEAST_CONTRACTED_BYTES)],
)
def test_bytes_need_a_longer_axis_even_when_they_are_widened(source: str, expected: int):
    function = widened(source)
    assert least_contracted(dot_of(function), definitions(function.body)) == expected


def test_all_loads_behind_a_value_are_found_once():
    function = widened("i8")
    dot, defined_by = dot_of(function), definitions(function.body)
    assert [load.tensor.name for load in loads_behind(dot.rhs, defined_by)] == ["y"]
    assert [load.tensor.name for load in loads_behind(dot.lhs, defined_by)] == ["x"]


def test_bounds_of_inner_loops_may_come_from_memory():
    function = parse_kernel(MATMUL)
    (grid,) = (op for op in function.body.ops if isinstance(op, Grid))
    assert not has_loaded_bounds_inside(grid, definitions(function.body))
    loaded = MATMUL.replace(
        "%acc = loop([%zero], [%K]",
        """%e = load(%ends, none, [%bm]) : i32[]
    %acc = loop([%zero], [%e]""",
    ).replace(
        "block m {slot=0}",
        'param %ends: tensor<i32[50], strides=[1], alias=3> from "ends"\nblock m {slot=0}',
    )
    function = parse_kernel(loaded)
    (grid,) = (op for op in function.body.ops if isinstance(op, Grid))
    assert has_loaded_bounds_inside(grid, definitions(function.body))
