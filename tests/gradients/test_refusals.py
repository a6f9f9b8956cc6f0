"""What cannot be differentiated says so, with the line and the reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.gradients.compare import derive, present


@helion.kernel
def read_back(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for tile in hl.tile(x.size(0)):
        for i in range(x.size(1)):
            out[tile, 0] += x[tile, i]
    return out


@helion.kernel
def halved(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for i in hl.grid(x.size(0)):
        value = x[i, 0]
        while value > 1.0:
            value = value / 2
        out[i] = value
    return out


@helion.kernel
def exchanged(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        hl.atomic_max(out, [tile], x[tile, 0])
    return out


@helion.kernel
def as_bits(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = (x[tile, :].view(torch.int32) & -2).view(torch.float32)
    return out


@helion.kernel
def doubled_in_place(x: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        x[tile, :] = x[tile, :] * 2
    return x


MISTAKES: tuple[tuple[Any, str, str], ...] = (
    (read_back, "is read and written by the same kernel", "out[tile, 0] += x[tile, i]"),
    (halved, "a loop of unknown length has no derivative", "while value > 1.0"),
    (exchanged, "an atomic max has no derivative", "hl.atomic_max"),
    (as_bits, "floats are made of bits that were computed", "view(torch.float32)"),
)


@pytest.mark.parametrize(
    ("kernel", "reason", "line"), MISTAKES, ids=lambda value: getattr(value, "name", "")
)
def test_the_line_and_the_reason_are_told(kernel: Any, reason: str, line: str) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    out = derive(kernel, (x,)).call(x)
    with pytest.raises(helion.exc.AutodiffNotSupported) as error:
        out.sum().backward()
    assert reason in str(error.value)
    assert line in str(error.value)


def test_a_leaf_that_is_changed_in_place_is_refused_before_it_is() -> None:
    x = torch.ones(3, 4, requires_grad=True)
    backward = derive(doubled_in_place, (x.detach(),))
    with pytest.raises(helion.exc.AutodiffNotSupported, match="is changed in place") as error:
        backward.call(x)
    assert "x[tile, :] = x[tile, :] * 2" in str(error.value)
    assert torch.equal(x, torch.ones(3, 4))


def test_bytes_have_no_gradient_and_the_line_that_loads_them_is_told() -> None:
    @helion.kernel
    def scaled(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.size(), dtype=scale.dtype, device=x.device)
        for tile in hl.tile(x.size(0)):
            out[tile, :] = x[tile, :].to(torch.float32) * scale[tile][:, None]
        return out

    x = torch.randn(3, 4).to(torch.float8_e4m3fn).requires_grad_()
    scale = torch.randn(3, requires_grad=True)
    out = derive(scaled, (x, scale)).call(x, scale)
    with pytest.raises(helion.exc.AutodiffNotSupported, match="has elements of f8") as error:
        out.sum().backward()
    assert "x[tile, :].to(torch.float32)" in str(error.value)
    (grad,) = torch.autograd.grad(scaled(x.detach(), scale).sum(), scale)
    assert torch.allclose(grad, x.detach().float().sum(1))


def test_a_kernel_of_bytes_only_has_no_source() -> None:
    @helion.kernel
    def widened(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.size(), dtype=torch.float32, device=x.device)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile].to(torch.float32)
        return out

    with pytest.raises(helion.exc.AutodiffNotSupported, match="no result depends on floats"):
        widened.backward_source((torch.arange(4),))


def test_integers_have_no_gradient_and_are_no_mistake() -> None:
    @helion.kernel
    def counted(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = torch.empty_like(x)
        above = torch.empty([x.size(0)], dtype=torch.int64, device=x.device)
        for tile in hl.tile(x.size(0)):
            out[tile, :] = x[tile, :] * 3
            above[tile] = (x[tile, :] > 0).sum(-1)
        return out, above

    x = torch.randn(3, 4, requires_grad=True)
    out, above = derive(counted, (x,)).call(x)
    assert not above.requires_grad
    out.sum().backward()
    assert torch.equal(present(x.grad), torch.full((3, 4), 3.0))
