"""Every op of a traced kernel knows the user's file, line and columns, through helpers too."""

from __future__ import annotations

import inspect
import sys

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.all_cases import CASES
from tests.conformance.case import Case
from tests.frontend import helper_module
from tilesmith import exc
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, If, Loop
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.reduction import Reduce, ReduceWith, ScanWith
from tilesmith.ir.traversal import walk_function
from tilesmith.jit.bound_kernel import BoundKernel


def traced(bound: BoundKernel) -> Function:
    """The IR as traced, before any pass."""
    return bound.traced_function


def lines_of(kernel: helion.Kernel) -> dict[str, int]:
    """Line numbers by the comment at the end of a source line."""
    text, first = inspect.getsourcelines(kernel.fn)
    return {
        line.rpartition("#")[2].strip(): first + i for i, line in enumerate(text) if "#" in line
    }


@helion.kernel
def commented(x, y):
    m, k = x.shape
    n = y.size(1)
    out = torch.empty([m, n], device=x.device)
    for t, u in hl.tile([m, n]):  # grid
        acc = hl.zeros([t, u])
        for v in hl.tile(k):  # loop
            acc = torch.addmm(  # dot
                acc,
                x[t, v],  # load x
                y[v, u],  # load y
            )
        if u.begin > 3:  # if
            acc = acc * 2  # multiply
        total = acc.sum(1)  # reduce
        out[t, u] = acc + total[:, None]  # store
    return out


KINDS: dict[str, type[Operation]] = {
    "grid": Grid, "loop": Loop, "dot": Dot, "if": If, "reduce": Reduce, "store": Store,
}  # fmt: skip


def test_statements_have_their_lines() -> None:
    function = traced(commented.bind((torch.randn(5, 6), torch.randn(6, 7))))
    lines = lines_of(commented)
    for name, kind in KINDS.items():
        found = {op.loc.line for op in walk_function(function) if isinstance(op, kind)}
        assert found == {lines[name]}, name
    loads = {op.tensor.name: op.loc.line for op in walk_function(function) if isinstance(op, Load)}
    assert loads == {"x": lines["load x"], "y": lines["load y"]}
    products = [op for op in walk_function(function) if getattr(op, "fn", "") == "mul"]
    assert {op.loc.line for op in products} == {lines["multiply"]}


def text_at(loc: SourceLocation) -> str:
    """What the columns of a location cover in its line."""
    with open(loc.file) as file:
        line = file.read().splitlines()[loc.line - 1]
    assert loc.columns is not None
    start, end = loc.columns
    return line[start:end]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="frames know no columns")
def test_columns_cover_the_expression() -> None:
    function = traced(commented.bind((torch.randn(5, 6), torch.randn(6, 7))))
    texts = {
        type(op).__name__: text_at(op.loc)
        for op in walk_function(function)
        if isinstance(op, (Load, Reduce, Store))
    }
    assert texts == {"Load": "y[v, u]", "Reduce": "acc.sum(1)", "Store": "out[t, u]"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_op_of_every_case_is_in_the_users_code(case: Case) -> None:
    function = traced(case.kernel.bind(case.make_args()))
    first = case.kernel.fn.__code__.co_firstlineno
    ops = list(walk_function(function))
    # Combine functions are called by us, not by the kernel.
    combining = [op.combine for op in ops if isinstance(op, (ReduceWith, ScanWith))]
    combined = {id(op) for region in combining for op in region.ops}
    for op in (op for op in ops if id(op) not in combined):
        assert op.loc.file.endswith("_kernels.py"), op
        assert op.loc.line >= 1
        outer = op.loc
        while outer.caller is not None:
            outer = outer.caller
        assert outer.line >= first, op
        assert outer.function == case.kernel.name


@helion.kernel
def calls_helpers(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = helper_module.outer(x[t])  # call
    return out


def test_helpers_show_the_chain_of_calls() -> None:
    function = traced(calls_helpers.bind((torch.randn(5),)))
    (op,) = [op for op in walk_function(function) if isinstance(op, Elementwise)]
    inner = op.loc
    assert inner.file.endswith("helper_module.py")
    assert inner.function == "inner"
    if sys.version_info >= (3, 11):
        assert text_at(inner) == "torch.sin(value)"
    assert inner.caller is not None
    assert inner.caller.function == "outer"
    assert inner.caller.caller is not None
    assert inner.caller.caller.line == lines_of(calls_helpers)["call"]
    assert inner.caller.caller.function == "calls_helpers"


@helion.kernel
def calls_a_helper_that_fails(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = helper_module.outer_with_mistake(x[t])
    return out


def test_errors_show_the_chain_of_calls() -> None:
    with pytest.raises(exc.UnsupportedTorchFunction) as caught:
        calls_a_helper_that_fails.bind((torch.randn(5),))
    text = str(caught.value)
    assert "helper_module.py" in text
    assert "test_locations.py" in text
    assert text.index("helper_module.py") < text.index("test_locations.py")
    assert "^^^" in text
