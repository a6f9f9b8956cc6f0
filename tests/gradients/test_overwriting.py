"""Elements that are stored more than once: only the last store counts, as in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.gradients.compare import derive, relative_error


@helion.kernel
def last_column(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        for i in range(x.size(1)):
            out[tile] = x[tile, i] * x[tile, i]
    return out


@helion.kernel
def stored_twice(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.exp(x[tile, :])
        out[tile, 0] = x[tile, 1] * 2
    return out


@helion.kernel
def cleared(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """A number takes the place of some elements."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        rows = x[tile, :]
        out[tile, :] = rows * rows
        hl.store(out, [tile, slice(None)], torch.full_like(rows, 7.0), extra_mask=rows > 0)
    return out


@helion.kernel
def scattered(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Columns go to the places that are given for them; the last one at a place stays."""
    out = torch.zeros_like(x)
    for tile in hl.tile(x.size(0)):
        factor = hl.full([tile], 1.0, dtype=x.dtype)
        for i in hl.grid(x.size(1)):
            factor = factor * x[tile, i]
            out[tile, places[i]] = factor
    return out


def scatter(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    columns = list(torch.zeros_like(x).unbind(1))
    for place, column in zip(places.tolist(), x.cumprod(1).unbind(1)):
        columns[place] = column
    return torch.stack(columns, 1)


def twice(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[:, 1:2] * 2, x[:, 1:].exp()], 1)


Reference = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
KERNELS: dict[str, tuple[Any, Reference]] = {
    "last_column": (last_column, lambda x, places: x[:, -1] ** 2),
    "stored_twice": (stored_twice, twice),
    "cleared": (cleared, lambda x, places: torch.where(x > 0, 7.0, x * x)),
    "scattered": (scattered, scatter),
}


@pytest.mark.parametrize("static", [True, pytest.param(False, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", KERNELS)
def test_only_the_last_store_has_a_gradient(name: str, static: bool) -> None:
    kernel, reference = KERNELS[name]
    kernel = kernel if static else helion.kernel(kernel.fn, static_shapes=False)
    generator = torch.Generator().manual_seed(5)
    for size in ((1, 2), (5, 7), (33, 4)):
        x = torch.randn(size, generator=generator, dtype=torch.float64).requires_grad_()
        places = torch.randint(size[1], (size[1],), generator=generator)
        out, exact = derive(kernel, (x, places)).call(x, places), reference(x, places)
        grad = torch.randn(out.shape, generator=generator, dtype=torch.float64)
        kept = grad.clone()
        (found,) = torch.autograd.grad(out, x, grad)
        (wanted,) = torch.autograd.grad(exact, x, grad)
        assert relative_error(found, wanted) < 1e-13
        assert torch.equal(grad, kept), "cotangents belong to the caller"


def test_a_cotangent_without_memory_of_its_own_is_copied() -> None:
    x, places = torch.randn(5, 3, dtype=torch.float64, requires_grad=True), torch.tensor([0, 0, 2])
    (found,) = torch.autograd.grad(scattered(x, places).sum(), x)
    (wanted,) = torch.autograd.grad(scatter(x, places).sum(), x)
    assert relative_error(found, wanted) < 1e-13


def test_differences_agree() -> None:
    x, places = torch.randn(2, 3, dtype=torch.float64, requires_grad=True), torch.tensor([1, 0, 1])
    backward = derive(scattered, (x, places))
    assert torch.autograd.gradcheck(lambda x: backward.call(x, places), (x,))


@helion.kernel(static_shapes=False)
def stored_by_some(
    x: torch.Tensor, weight: torch.Tensor, places: torch.Tensor, number: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether anything is stored depends on a number. Rows share a weight, so they are grouped."""
    out = torch.zeros([x.size(0)], dtype=x.dtype, device=x.device)
    scaled = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, 0]
        scaled[tile, :] = x[tile, :] * weight[:]
        if number < 1:
            at = places[tile]
            out[at] = row
    return out, scaled


@pytest.mark.parametrize("number", [0, 1])
def test_what_a_branch_hands_on_is_read_before_it_is_cleared(number: int) -> None:
    x = torch.randn(33, 2, dtype=torch.float64, requires_grad=True)
    weight, places = torch.ones(2, dtype=torch.float64), torch.randperm(33)
    weight.requires_grad_()
    backward = derive(stored_by_some, (x, weight, places, number))
    grads = [torch.randn(size, dtype=torch.float64) for size in ((33,), (33, 2))]
    results = backward.call(x, weight, places, number)
    found = torch.autograd.grad(results, (x, weight), grads)
    wanted = grads[1].clone()
    wanted[:, 0] += grads[0][places] if number < 1 else 0
    assert torch.equal(found[0], wanted)
    torch.testing.assert_close(found[1], (grads[1] * x.detach()).sum(0))
