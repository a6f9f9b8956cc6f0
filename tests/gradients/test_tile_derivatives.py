"""The adjoint of each op, of loops and of branches, against differences in fp64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith.language as hl
from tests.gradients.compare import derive, present
from tests.gradients.tile_kernels import (
    branched,
    decayed,
    from_the_end,
    gathered,
    looked_up,
    masked,
    nested,
    of_matrices,
    of_rows,
    of_whole_rows,
    stepped,
    summed_atomically,
    with_host_views,
)
from tilesmith.numerics.inputs import random_tensor

ROW_FUNCTIONS: dict[str, Any] = {
    "sum": lambda row: row.sum(-1),
    "mean": lambda row: row.mean(-1),
    "amax": lambda row: row.amax(-1),
    "amin": lambda row: row.amin(-1),
    "prod": lambda row: row.prod(-1),
    "logsumexp": lambda row: torch.logsumexp(row, -1),
    "norm": lambda row: torch.linalg.vector_norm(row, dim=-1),
    "variance": lambda row: torch.var(row, dim=-1),
    "split": lambda row: hl.split(row.reshape(row.size(0), 3, 2))[1].sum(-1),
}
WHOLE_ROW_FUNCTIONS: dict[str, Any] = {
    "softmax": lambda row: torch.softmax(row, -1),
    "log_softmax": lambda row: torch.log_softmax(row, -1),
    "cumsum": lambda row: torch.cumsum(row, -1),
    "reverse cumsum": lambda row: hl.cumsum(row, 1, reverse=True),
    "where": lambda row: torch.where(row > 0.0, row * row, -row),
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
    "centred": lambda row: row - row.mean(-1, keepdim=True),
    "columns": lambda row: row * row.sum(0)[None, :],
    "interleaved": lambda row: hl.join(
        *hl.split(row.reshape(row.size(0), 3, 2))[::-1]
    ).reshape(row.size(0), 6),
}  # fmt: skip
MATRIX_FUNCTIONS: dict[str, Any] = {
    "product": torch.bmm,
    "transposed": lambda x, y: torch.bmm(x.mT, y),
    "both": lambda x, y: torch.bmm(x, y.mT).mT,
    "accumulated": lambda x, y: torch.baddbmm(x, x, y),
    "permuted": lambda x, y: x.permute(0, 2, 1) * y,
}


def fp64(*shape: int, seed: int = 0) -> torch.Tensor:
    return random_tensor(shape, torch.float64, seed=seed).requires_grad_()


def check(kernel: Any, *args: Any) -> None:
    backward = derive(kernel, args)
    assert torch.autograd.gradcheck(backward.call, args)


@pytest.mark.parametrize("name", ROW_FUNCTIONS)
def test_adjoints_of_reductions(name: str) -> None:
    check(of_rows, fp64(5, 6), ROW_FUNCTIONS[name])


@pytest.mark.parametrize("name", WHOLE_ROW_FUNCTIONS)
def test_adjoints_of_rows(name: str) -> None:
    # The sum of a column is that of a tile: one tile for all rows, so that it is the column's.
    rows = 2 if name == "columns" else 5
    check(of_whole_rows, fp64(rows, 6), WHOLE_ROW_FUNCTIONS[name])


@pytest.mark.parametrize("name", MATRIX_FUNCTIONS)
def test_products_and_views(name: str) -> None:
    check(of_matrices, fp64(3, 4, 4), fp64(3, 4, 4, seed=1), MATRIX_FUNCTIONS[name])


def test_gathers_within_tiles_and_from_tables() -> None:
    places = torch.tensor([[0, 3, 3], [1, 0, 2], [4, 4, 4]])
    check(gathered, fp64(3, 5), places)
    check(looked_up, fp64(4, 3), torch.tensor([1, 1, 3, 0, 1]))


def test_masked_lanes_get_nothing() -> None:
    lengths = torch.tensor([3, 0, 5, 1, 4])
    x = fp64(5, 5)
    check(masked, x, lengths)
    (grad,) = derive(masked, (x, lengths)).run((x, lengths), (torch.ones(5).double(),))[:1]
    inside = torch.arange(5)[None, :] < lengths[:, None]
    assert torch.equal(grad != 0, inside)


def test_adjoints_of_branches() -> None:
    check(branched, fp64(6, 3), 4)


@pytest.mark.parametrize("kernel", [decayed, stepped, nested], ids=lambda kernel: kernel.name)
def test_adjoints_of_recurrences(kernel: Any) -> None:
    check(kernel, fp64(5, 7), fp64(7, seed=1) if kernel is not decayed else fp64(5, seed=1))


def test_loops_from_the_last_tile_to_the_first() -> None:
    check(from_the_end, fp64(5, 7))


def test_atomic_sums() -> None:
    check(summed_atomically, fp64(7), torch.tensor([0, 1, 1, 3, 0, 2, 1]))


def test_host_code_around_the_loop_is_differentiated_by_torch() -> None:
    check(with_host_views, fp64(3, 5), fp64(1, seed=1))


def test_ties_of_a_maximum_are_shared_as_amax_does() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], dtype=torch.float64, requires_grad=True)
    args = (x, ROW_FUNCTIONS["amax"])
    ones = torch.ones(2, dtype=torch.float64)
    (exact,) = torch.autograd.grad(x.amax(-1), x, ones)
    assert torch.equal(present(derive(of_rows, args).run(args, (ones,))[0]), exact)


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_products_with_zeros(zeros: int) -> None:
    x = fp64(2, 5)
    with torch.no_grad():
        x[0, :zeros] = 0.0
    args = (x, ROW_FUNCTIONS["prod"])
    ones = torch.ones(2, dtype=torch.float64)
    (exact,) = torch.autograd.grad(x.prod(-1), x, ones)
    (found,) = derive(of_rows, args).run(args, (ones,))
    assert torch.allclose(present(found), exact, rtol=1e-13, atol=0.0)
