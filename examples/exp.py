"""Exponential with a hand-written backward, joined by `torch.autograd.Function`."""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def exp_fwd(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = torch.exp(x[tile])
    return out


@helion.kernel
def exp_bwd(grad_out: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    grad_x = torch.empty_like(out)
    for tile in hl.tile(out.size()):
        grad_x[tile] = grad_out[tile] * out[tile]
    return grad_x


class Exp(torch.autograd.Function):
    """`torch.exp` with both directions written as kernels."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Run the forward kernel and keep what the backward needs."""
        out = exp_fwd(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> torch.Tensor:
        """Run the backward kernel."""
        (out,) = ctx.saved_tensors
        return exp_bwd(grad_out, out)


def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x.double())


def reference_bwd(grad_out: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return grad_out.double() * out.double()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(10_000, device=device, requires_grad=True)
    grad_out = torch.randn(10_000, device=device)
    out = Exp.apply(x)
    out.backward(grad_out)
    forward = check_against(out.detach(), reference(x.detach()))
    backward = check_against(x.grad, reference_bwd(grad_out, out.detach()))
    print(f"exp: forward {forward.max_ulp:.2f} ulp, backward {backward.max_ulp:.2f} ulp")


if __name__ == "__main__":
    main()
