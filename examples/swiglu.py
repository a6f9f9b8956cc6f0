"""The gated unit `silu(gate) * up`, forward and backward, on flat views of tensors of any shape.

Shows host views: the kernels see one dimension, whatever the tensors have.
"""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    assert gate.shape == up.shape, "one gate per value"
    dtype = torch.promote_types(gate.dtype, up.dtype)
    out = torch.empty(gate.shape, dtype=dtype, device=gate.device)
    wide = torch.promote_types(dtype, torch.float32)
    flat_gate, flat_up, flat_out = gate.reshape(-1), up.reshape(-1), out.view(-1)
    for tile in hl.tile(out.numel()):
        x = flat_gate[tile].to(wide)
        flat_out[tile] = x * torch.sigmoid(x) * flat_up[tile].to(wide)
    return out


@helion.kernel
def swiglu_bwd(
    grad_out: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    grad_gate = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    grad_up = torch.empty(up.shape, dtype=up.dtype, device=up.device)
    wide = torch.promote_types(grad_out.dtype, torch.float32)
    flat_grad, flat_gate, flat_up = grad_out.reshape(-1), gate.reshape(-1), up.reshape(-1)
    flat_grad_gate, flat_grad_up = grad_gate.view(-1), grad_up.view(-1)
    for tile in hl.tile(gate.numel()):
        grad = flat_grad[tile].to(wide)
        x = flat_gate[tile].to(wide)
        open_share = torch.sigmoid(x)
        # The derivative of x * sigmoid(x); one minus the sigmoid without cancellation.
        slope = open_share * (1 + x * torch.sigmoid(-x))
        flat_grad_gate[tile] = grad * flat_up[tile].to(wide) * slope
        flat_grad_up[tile] = grad * x * open_share
    return grad_gate, grad_up


class SwiGLU(torch.autograd.Function):
    """`silu(gate) * up` with both directions written as kernels."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """Run the forward kernel; its inputs are all the backward needs."""
        ctx.save_for_backward(gate, up)
        return swiglu(gate, up)

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the backward kernel."""
        return swiglu_bwd(grad_out, *ctx.saved_tensors)


def reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate.double()) * up.double()


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
    gate, up = (
        torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True)
        for _ in range(2)
    )
    grad_out = torch.randn(shape, device=device, dtype=torch.bfloat16)
    out = SwiGLU.apply(gate, up)
    out.backward(grad_out)
    forward = check_against(out.detach(), reference(gate.detach(), up.detach()))
    exact = reference_bwd(grad_out, gate.detach(), up.detach())
    # The derivative of silu has a zero: near it only the absolute error is small.
    backward = [
        check_against(grad, wanted, reduction_length=2).relative_norm
        for grad, wanted in zip((gate.grad, up.grad), exact)
    ]
    print(f"swiglu: forward {forward.max_ulp:.2f} ulp, backward error {max(backward):.1e}")


if __name__ == "__main__":
    main()
