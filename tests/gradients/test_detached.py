"""What device code detaches has no gradient, in whichever form: it was passed over."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.gradients.compare import derive, present, relative_error


@helion.kernel
def quantised(x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """Straight through: rounding is taken for the identity."""
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        scaled = x[t, :] / step[0]
        rounded = scaled + (torch.round(scaled) - scaled).detach()
        out[t, :] = rounded * step[0].detach()
    return out


def exact_quantised(x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    scaled = x / step[0]
    return (scaled + (torch.round(scaled) - scaled).detach()) * step[0].detach()


@helion.kernel
def weighted(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        rows = x[t, :]
        out[t, :] = rows * rows * torch.softmax(rows, -1).detach()
    return out


@pytest.mark.parametrize("rows", [1, 5, 16])
def test_straight_through(rows: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(rows, 7, requires_grad=True)
    step = torch.tensor([0.3], requires_grad=True)
    wide = [v.detach().double().requires_grad_() for v in (x, step)]
    exact = exact_quantised(*wide)
    out = quantised(x, step)
    assert relative_error(out, exact) < 1e-6
    grad = torch.randn_like(out)
    found = torch.autograd.grad(out, (x, step), grad)
    for actual, right in zip(found, torch.autograd.grad(exact, wide, grad.double())):
        assert relative_error(actual, right) < 1e-5


def test_second_derivatives_keep_to_it() -> None:
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(weighted(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    wanted = 2 * torch.softmax(x, -1)
    assert relative_error(present(first), wanted * x) < 1e-12
    assert relative_error(present(second), wanted) < 1e-12


def test_the_source_says_so_and_forward_code_does_not() -> None:
    x = torch.randn(5, 7)
    assert ".detach()" in derive(weighted, (x,)).source
    text = weighted.bind((x,)).to_code()
    assert "bitcast" not in text
    assert "bitcast" not in weighted.bind((x,)).to_triton_code(target="cuda:90")
