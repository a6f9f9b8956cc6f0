"""The loop IR of known kernels is well formed, and one that is broken on purpose is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tests.backends.cpu.test_print_nests import CASES, Case, find, lower
from tilesmith import exc
from tilesmith.backends.cpu import backend
from tilesmith.backends.cpu.loop_ir.elements import LoopIndex, TilePlace
from tilesmith.backends.cpu.loop_ir.statements import (
    Assign,
    Kernel,
    Nest,
    ReduceElement,
    Statement,
    StoreElement,
)
from tilesmith.backends.cpu.loop_ir.verifier import verify_kernel
from tilesmith.dtypes import I64


@pytest.mark.parametrize("case", CASES, ids=str)
def test_loop_ir_is_well_formed(case: Case) -> None:
    verify_kernel(lower(case)[1])


def change(kernel: Kernel, rewrite: Callable[[Statement], Statement | None]) -> Kernel:
    """The kernel with every statement of its first grid rewritten; None drops one."""
    (grid,) = kernel.grids
    body = tuple(new for new in map(rewrite, grid.body) if new is not None)
    parts = [replace(part, body=body) if part is grid else part for part in kernel.body]
    return replace(kernel, body=tuple(parts))


def refused(kernel: Kernel, problem: str) -> None:
    with pytest.raises(exc.InternalError, match=problem):
        verify_kernel(kernel)


def test_a_scalar_that_nothing_assigns_is_refused() -> None:
    kernel = lower(find("branch_while_and_atomic"))[1]
    refused(change(kernel, lambda s: None if isinstance(s, Assign) else s), "before it is defined")


def test_a_scalar_that_is_assigned_too_late_is_refused() -> None:
    kernel = lower(find("softmax"))[1]
    (grid,) = kernel.grids
    late = replace(grid, body=(*grid.body[1:], grid.body[0]))
    parts = tuple(late if part is grid else part for part in kernel.body)
    refused(replace(kernel, body=parts), "before it is defined")


def test_a_tile_without_memory_is_refused() -> None:
    kernel = lower(find("softmax_rows"))[1]
    (grid,) = kernel.grids
    parts = [replace(part, tiles=()) if part is grid else part for part in kernel.body]
    refused(replace(kernel, body=tuple(parts)), "has no memory")


def test_a_store_outside_of_a_loop_that_binds_its_axes_is_refused() -> None:
    def rewrite(statement: Statement) -> Statement:
        if isinstance(statement, Nest) and isinstance(statement.writes[0], StoreElement):
            return statement.writes[0]
        return statement

    refused(change(lower(find("softmax"))[1], rewrite), "needs more loops")


def test_lanes_along_no_loop_are_refused() -> None:
    def rewrite(statement: Statement) -> Statement:
        if isinstance(statement, Nest):
            return replace(statement, layout=replace(statement.layout, vector_axis=-1))
        return statement

    refused(change(lower(find("softmax"))[1], rewrite), "lanes without a loop")


def test_a_result_along_the_reduced_loop_is_refused() -> None:
    def rewrite(statement: Statement) -> Statement:
        if not isinstance(statement, Nest):
            return statement
        write = statement.writes[0]
        if not isinstance(write, ReduceElement) or not isinstance(write.target, TilePlace):
            return statement
        along = LoopIndex(statement.layout.vector_axis)
        target = replace(write.target, positions=(along,) * len(write.target.positions))
        return replace(statement, writes=(replace(write, target=target),))

    refused(change(lower(find("softmax_rows"))[1], rewrite), "a result along the reduced loop")


def test_a_scalar_of_another_type_is_refused() -> None:
    def rewrite(statement: Statement) -> Statement:
        if not isinstance(statement, Assign):
            return statement
        return replace(statement, variable=replace(statement.variable, dtype=I64))

    kernel = lower(find("branch_while_and_atomic"))[1]
    refused(change(kernel, rewrite), "a scalar of another type")


def test_compiling_in_tests_verifies_the_loop_ir(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(kernel: Kernel) -> None:
        raise exc.InternalError(problem=f"looked at {kernel.name}")

    monkeypatch.setattr(backend, "verify_kernel", broken)

    def double(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * 2
        return out

    bound = tilesmith.kernel(double).bind((torch.ones(8),))
    with pytest.raises(exc.InternalError, match="looked at"):
        bound.to_artifact()
