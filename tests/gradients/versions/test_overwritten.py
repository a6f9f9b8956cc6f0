"""Arguments that a kernel reads and then overwrites: the gradient is of what was there before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.gradients.compare import derive, relative_error
from tilesmith.experimental import backward

Results = tuple[torch.Tensor, ...]


@helion.kernel
def sine_of_twice(x: torch.Tensor, y: torch.Tensor) -> Results:
    """Read, stored and read again."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        x[tile, :] = x[tile, :] * 2
        out[tile, :] = torch.sin(x[tile, :]) * y[tile, :]
    return out, x


@helion.kernel
def squared_in_part(x: torch.Tensor, y: torch.Tensor) -> Results:
    """Elements that no store reaches pass their gradients on."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        rows = x[tile, :]
        out[tile, :] = rows * y[tile, :]
        x[tile, 1] = x[tile, 0] * x[tile, 1]
    return out, x


@helion.kernel
def kept_where_negative(x: torch.Tensor, y: torch.Tensor) -> Results:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        rows = x[tile, :]
        out[tile, :] = rows + y[tile, :]
        hl.store(x, [tile, slice(None)], rows * rows, extra_mask=y[tile, :] > 0)
    return out, x


@helion.kernel
def in_tiles(x: torch.Tensor, y: torch.Tensor) -> Results:
    """Each turn of a loop has elements of its own."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        for column in hl.tile(x.size(1), block_size=2):
            values = x[tile, column]
            x[tile, column] = values * y[tile, column]
            out[tile, column] = values * values
    return out, x


def multiplied(x: torch.Tensor, y: torch.Tensor) -> Results:
    product = x[:, :1] * x[:, 1:2]
    return x * y, torch.cat([x[:, :1], product, x[:, 2:]], 1)


Reference = Callable[[torch.Tensor, torch.Tensor], Results]
KERNELS: dict[str, tuple[Any, Reference]] = {
    "sine_of_twice": (sine_of_twice, lambda x, y: (torch.sin(2 * x) * y, 2 * x)),
    "squared_in_part": (squared_in_part, multiplied),
    "kept_where_negative": (kept_where_negative, lambda x, y: (x + y, x.where(y <= 0, x * x))),
    "in_tiles": (in_tiles, lambda x, y: (x * x, x * y)),
}


@pytest.mark.parametrize("used", ["first", "both", "second"])
@pytest.mark.parametrize("name", KERNELS)
def test_what_was_there_has_a_gradient(name: str, used: str) -> None:
    kernel, reference = KERNELS[name]
    chosen = {"first": slice(0, 1), "both": slice(0, 2), "second": slice(1, 2)}[used]
    leaves = [torch.randn(5, 7, requires_grad=True) for _ in range(2)]
    weights = [torch.randn(5, 7) for _ in range(2)]
    x, y = leaves[0] * 1, leaves[1]

    def loss(results: Results) -> torch.Tensor:
        pairs = list(zip(results, weights))[chosen]
        return sum((out * weight.to(out.dtype)).sum() for out, weight in pairs)  # type: ignore[return-value]

    results = derive(kernel, (x.detach(), y.detach())).call(x, y)
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    exact_results = reference(wide[0], wide[1])
    for out, exact in zip(results, exact_results):
        assert relative_error(out.detach(), exact.detach()) < 1e-6
    found = torch.autograd.grad(loss(results), leaves, allow_unused=True, materialize_grads=True)
    exact = torch.autograd.grad(
        loss(exact_results), wide, allow_unused=True, materialize_grads=True
    )
    for grad, wanted in zip(found, exact):
        assert relative_error(grad, wanted) < 1e-6


def test_backward_leaves_arguments_as_they_are() -> None:
    x, y, grad = (torch.randn(5, 7) for _ in range(3))
    before = x.clone()
    grad_x, grad_y = backward(sine_of_twice, grad, x, y)
    assert torch.equal(x, before)
    wide = x.double()
    assert relative_error(grad_x, 2 * torch.cos(2 * wide) * y * grad) < 1e-6
    assert relative_error(grad_y, torch.sin(2 * wide) * grad) < 1e-6


def test_a_second_derivative() -> None:
    leaf = torch.randn(5, 7, requires_grad=True)
    y = torch.randn(5, 7)
    out, _ = derive(sine_of_twice, (leaf.detach().clone(), y)).call(leaf * 1, y)
    (first,) = torch.autograd.grad(out.sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), leaf)
    assert relative_error(second, -4 * torch.sin(2 * leaf.detach().double()) * y) < 1e-6


@helion.kernel
def shifted(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        for i in range(1, 4):
            x[tile, i] = x[tile, i - 1] * 2
            out[tile, i] = x[tile, i]
    return out


def test_a_turn_that_reads_what_the_one_before_stored_is_refused() -> None:
    with pytest.raises(helion.exc.AutodiffNotSupported, match=r"is changed in place"):
        backward(shifted, torch.ones(3, 4), torch.ones(3, 4))


def test_a_view_of_a_leaf_is_refused_before_it_is_changed() -> None:
    leaf, y = torch.ones(5, 7, requires_grad=True), torch.ones(5, 7)
    derived = derive(sine_of_twice, (leaf.detach(), y))
    with pytest.raises(helion.exc.AutodiffNotSupported, match=r"`x`.* is changed in place"):
        derived.call(leaf.view(5, 7), y)
    assert torch.equal(leaf, torch.ones(5, 7))


def test_a_view_of_what_has_a_gradient_may_change() -> None:
    leaf, y = torch.randn(4, 5, 7, requires_grad=True), torch.randn(5, 7)
    stack = leaf * 1
    out, _ = derive(sine_of_twice, (stack[1].detach().clone(), y)).call(stack[1], y)
    (grad,) = torch.autograd.grad(out.sum() + stack.sum(), leaf)
    wide = leaf.detach().double()
    exact = torch.ones_like(wide)
    exact[1] = 2 * torch.cos(2 * wide[1]) * y + 2
    assert relative_error(grad, exact) < 1e-6
