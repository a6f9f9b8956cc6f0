"""The gated unit of a feed-forward layer, `gelu(gate) * up` with the tanh form of gelu, and back.

The activation is an ordinary Python function on tiles. Half of one plus a tanh is the sigmoid of
twice its argument, which does not cancel far below zero, and costs no more.
"""

from __future__ import annotations

import math
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

CUBIC = 0.044715
TWICE_TANH_SCALE = 2 * math.sqrt(2 / math.pi)


def gelu_argument(x: torch.Tensor) -> torch.Tensor:
    """What gelu takes the sigmoid of."""
    return TWICE_TANH_SCALE * (x + CUBIC * x * x * x)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """`x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2`."""
    return x * torch.sigmoid(gelu_argument(x))


def gelu_slope(x: torch.Tensor) -> torch.Tensor:
    """The derivative of gelu."""
    argument = gelu_argument(x)
    argument_slope = TWICE_TANH_SCALE * (1 + 3 * CUBIC * x * x)
    # A sigmoid of its own for one minus the sigmoid: the difference would cancel.
    return torch.sigmoid(argument) * (1 + x * argument_slope * torch.sigmoid(-argument))


@helion.kernel
def geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    assert gate.shape == up.shape, "one gate per value"
    out = torch.empty_like(gate, dtype=torch.promote_types(gate.dtype, up.dtype))
    # At least fp32 whatever the type of the tensors, rounded once.
    wide = torch.promote_types(out.dtype, torch.float32)
    for tile in hl.tile(gate.size()):
        out[tile] = gelu(gate[tile].to(wide)) * up[tile].to(wide)
    return out


@helion.kernel
def geglu_bwd(
    grad_out: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    grad_gate = torch.empty_like(gate)
    grad_up = torch.empty_like(up)
    wide = torch.promote_types(grad_out.dtype, torch.float32)
    for tile in hl.tile(gate.size()):
        grad = grad_out[tile].to(wide)
        x = gate[tile].to(wide)
        grad_gate[tile] = grad * up[tile].to(wide) * gelu_slope(x)
        grad_up[tile] = grad * gelu(x)
    return grad_gate, grad_up


class GeGLU(torch.autograd.Function):
    """`gelu(gate) * up` with both directions written as kernels."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """Run the forward kernel; its inputs are all the backward needs."""
        ctx.save_for_backward(gate, up)
        return geglu(gate, up)

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the backward kernel."""
        return geglu_bwd(grad_out, *ctx.saved_tensors)


def reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(gate.double(), approximate="tanh") * up.double()


def reference_bwd(
    grad_out: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    gate, up = (values.double().requires_grad_() for values in (gate, up))
    grad_gate, grad_up = torch.autograd.grad(reference(gate, up), (gate, up), grad_out.double())
    return grad_gate, grad_up


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = (8, 2048, 4096) if device == "cuda" else (2, 100, 300)
    for dtype in (torch.float32, torch.bfloat16):
        gate, up, grad_out = (torch.randn(shape, device=device, dtype=dtype) for _ in range(3))
        out = GeGLU.apply(gate.requires_grad_(), up.requires_grad_())
        out.backward(grad_out)
        gate, grad_gate, up, grad_up = gate.detach(), gate.grad, up.detach(), up.grad
        exact_gate, exact_up = reference_bwd(grad_out, gate, up)
        # Results vanish like exp(-x * x): there only their absolute error is small.
        reports = [
            check_against(actual, exact, reduction_length=2)
            for actual, exact in (
                (out.detach(), reference(gate, up)),
                (grad_gate, exact_gate),
                (grad_up, exact_up),
            )
        ]
        worst = max(report.relative_norm for report in reports)
        print(f"geglu: {dtype}, relative error {worst:.1e}")


if __name__ == "__main__":
    main()
