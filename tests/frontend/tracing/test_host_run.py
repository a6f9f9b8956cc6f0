"""Running host code only to trace it leaves the user's tensors and generators alone."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith.language as hl
from tests.frontend.traced import trace_of
from tilesmith.frontend.source.kernel_source import KernelSource
from tilesmith.frontend.tracing.host_run import (
    copy_tensors,
    may_change_arguments,
    may_compute,
)


def host_code(text: str) -> KernelSource:
    tree = ast.parse("def f(): pass").body[0]
    assert isinstance(tree, ast.FunctionDef)
    tree.body = ast.parse(text).body
    return KernelSource(host_code, text, tree, len(tree.body), 0)


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("x.zero_()", True),
        ("x[0] = 1", True),
        ("x += 1", True),
        ("torch.add(x, 1, out=y)", True),
        ("n = 0\nn += x.size(0)", False),
        ("y = x[0]", False),
        ("y = x.__len__()", False),
        ("y = torch.empty_like(x)", False),
    ],
)
def test_changes_in_place_are_seen(text: str, changes: bool) -> None:
    assert may_change_arguments(host_code(text)) is changes


@pytest.mark.parametrize(
    ("text", "computes"),
    [("n = 1", False), ("y = x * 2", True), ("y = f(x)", True), ("y = x[0]", True)],
)
def test_host_code_that_could_compute(text: str, computes: bool) -> None:
    assert may_compute(ast.parse(text).body) is computes


def test_copies_share_memory_where_the_originals_do() -> None:
    whole = torch.arange(6.0)
    copy, part, other = copy_tensors([whole, whole[2:4], torch.arange(6.0)])
    part.fill_(9.0)
    assert copy.tolist() == [0, 1, 9, 9, 4, 5]
    assert whole.tolist() == [0, 1, 2, 3, 4, 5]
    assert other.tolist() == [0, 1, 2, 3, 4, 5]
    assert copy_tensors({"n": 3}) == {"n": 3}


def test_strides_and_offsets_are_kept() -> None:
    x = torch.arange(12.0).view(3, 4).t()[1:]
    copy = copy_tensors(x)
    assert (copy.stride(), copy.storage_offset()) == (x.stride(), x.storage_offset())
    assert torch.equal(copy, x)


def marks(x):
    x.fill_(torch.rand(()).item())
    for t in hl.tile(x.size(0)):
        x[t] = x[t] + 1


def test_tracing_leaves_tensors_and_random_numbers_as_they_were() -> None:
    x = torch.zeros(4)
    state = torch.random.get_rng_state()
    trace_of(marks, x)
    assert x.tolist() == [0, 0, 0, 0]
    assert torch.equal(torch.random.get_rng_state(), state)


def reads_sizes(x, out):
    m, n = x.shape
    half = n // 2
    for t in hl.tile(m):
        out[t] = x[t, half]


def literal_columns(x, out):
    rows = torch.empty([x.size(0), 3])
    for t in hl.tile(rows.size(0)):
        out[t] = rows[t, :].sum(1)


@pytest.mark.parametrize(
    ("function", "tensor", "is_constant"),
    [(reads_sizes, "x", False), (literal_columns, "rows", True)],
)
def test_sizes_are_runtime_values_unless_host_code_wrote_the_number(
    function: Callable[..., Any], tensor: str, is_constant: bool
) -> None:
    trace = trace_of(function, torch.zeros(5, 8), torch.zeros(5), static_shapes=False)
    parameters = {parameter.value.name: parameter.value for parameter in trace.function.parameters}
    rows, columns = parameters[tensor].tensor.shape
    assert isinstance(rows, str)
    assert isinstance(columns, int) is is_constant
