"""Derivatives of running combinations: extremes, products, and functions of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.gradients.compare import derive, relative_error

Two = tuple[torch.Tensor, torch.Tensor]
FULL = pytest.mark.full
SIZES = ((3, 1), (5, 17), (2, 64))
"""One element, partial tiles, whole ones."""


def linear(
    before: torch.Tensor, total: torch.Tensor, factor: torch.Tensor, own: torch.Tensor
) -> Two:
    return before * factor, total * factor + own


def turned(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> Two:
    """The product of two complex numbers: every result depends on both elements."""
    return a * c - b * d, a * d + b * c


def log_add(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.maximum(left, right) + torch.log1p(torch.exp(-torch.abs(left - right)))


@helion.kernel
def recurrence(x: torch.Tensor, y: torch.Tensor) -> Two:
    first, second = torch.empty_like(x), torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        found = hl.associative_scan(linear, (x[tile, :], y[tile, :]), dim=1)
        first[tile, :], second[tile, :] = found
    return first, second


@helion.kernel
def recurrence_back(x: torch.Tensor, y: torch.Tensor) -> Two:
    first, second = torch.empty_like(x), torch.empty_like(x)
    for tile, other in hl.tile(x.size()):
        found = hl.associative_scan(linear, (x[tile, other], y[tile, other]), dim=1, reverse=True)
        first[tile, other], second[tile, other] = found
    return first, second


@helion.kernel
def complex_products(x: torch.Tensor, y: torch.Tensor) -> Two:
    first, second = torch.empty_like(x), torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        first[tile, :], second[tile, :] = hl.associative_scan(
            turned, (x[tile, :], y[tile, :]), dim=1
        )
    return first, second


@helion.kernel
def log_sums(x: torch.Tensor, y: torch.Tensor) -> Two:
    first = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    second = torch.empty_like(y)
    for tile in hl.tile(x.size(0)):
        first[tile] = hl.reduce(log_add, x[tile, :], dim=1, other=float("-inf"))
        second[tile, :] = hl.associative_scan(log_add, y[tile, :], dim=1)
    return first, second


@helion.kernel
def products(x: torch.Tensor, y: torch.Tensor) -> Two:
    first, second = torch.empty_like(x), torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        first[tile, :] = torch.cumprod(x[tile, :], 1)
        second[tile, :] = hl.cumprod(y[tile, :], 1, reverse=True)
    return first, second


@helion.kernel
def extremes(x: torch.Tensor, y: torch.Tensor) -> Two:
    first, second = torch.empty_like(x), torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        first[tile, :] = torch.cummax(x[tile, :], 1)[0]
        second[tile, :] = torch.cummin(y[tile, :], 1)[0]
    return first, second


def by_turns(combine: Callable[..., Two], *, reverse: bool = False) -> Callable[..., Two]:
    def run(x: torch.Tensor, y: torch.Tensor) -> Two:
        columns = list(zip(x.unbind(1), y.unbind(1)))
        columns = columns[::-1] if reverse else columns
        found = [columns[0]]
        for column in columns[1:]:
            found.append(combine(*found[-1], *column))
        first, second = zip(*(found[::-1] if reverse else found))
        return torch.stack(first, 1), torch.stack(second, 1)

    return run


KERNELS: dict[str, tuple[Any, Callable[..., Two]]] = {
    "recurrence": (recurrence, by_turns(linear)),
    "recurrence_back": (recurrence_back, by_turns(linear, reverse=True)),
    "complex_products": (complex_products, by_turns(turned)),
    "log_sums": (log_sums, lambda x, y: (x.logsumexp(1), y.logcumsumexp(1))),
    "products": (products, lambda x, y: (x.cumprod(1), y.flip(1).cumprod(1).flip(1))),
    "extremes": (extremes, lambda x, y: (x.cummax(1)[0], y.cummin(1)[0])),
}


def inputs(size: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randn(size, generator=generator, dtype=torch.float64) for _ in range(2))
    # A product with a zero in it, and equal elements.
    x[:, size[1] // 2] = 0.0
    y[:, -1] = y[:, 0]
    return x.requires_grad_(), y.requires_grad_()


@pytest.mark.parametrize("name", KERNELS)
def test_the_gradient_is_that_of_turns(name: str) -> None:
    kernel, reference = KERNELS[name]
    check(kernel, reference, SIZES)


@pytest.mark.full
@pytest.mark.parametrize("name", KERNELS)
def test_runtime_sizes(name: str) -> None:
    kernel, reference = KERNELS[name]
    check(helion.kernel(kernel.fn, static_shapes=False), reference, ((5, 17), (3, 33)))


def check(kernel: Any, reference: Callable[..., Two], sizes: Iterable[tuple[int, int]]) -> None:
    for size in sizes:
        args = inputs(size)
        results, exact = derive(kernel, args).call(*args), reference(*args)
        grads = [torch.randn(out.shape, dtype=out.dtype) for out in exact]
        found = torch.autograd.grad(results, args, grads)
        wanted = torch.autograd.grad(exact, args, grads)
        for actual, right in zip(found, wanted):
            assert relative_error(actual, right) < 1e-12


@pytest.mark.parametrize("name", ["log_sums", pytest.param("complex_products", marks=FULL)])
def test_the_gradient_is_that_of_differences(name: str) -> None:
    kernel, _ = KERNELS[name]
    x, y = (torch.randn(2, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(derive(kernel, (x, y)).call, (x, y))


@pytest.mark.full
@pytest.mark.parametrize("name", KERNELS)
def test_scans_go_back_twice(name: str) -> None:
    kernel, _ = KERNELS[name]
    x, y = (torch.randn(2, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradgradcheck(derive(kernel, (x, y)).call, (x, y))
