"""RMS normalisation of rows, forward and backward.

The forward also returns the inverse root mean square, which the backward needs. The gradient of the
weight is a sum over rows: each block of rows writes its part, the host adds the parts up.
"""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

Two = tuple[torch.Tensor, torch.Tensor]


@helion.kernel
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5) -> Two:
    m, n = x.size()
    assert weight.size(0) == n, "one weight per column"
    out = torch.empty_like(x)
    wide = torch.promote_types(x.dtype, torch.float32)
    inverse_rms = torch.empty([m, 1], dtype=wide, device=x.device)
    for tile_m in hl.tile(m):
        row = x[tile_m, :].to(wide)
        inverse = torch.rsqrt(torch.mean(row * row, dim=-1, keepdim=True) + eps)
        out[tile_m, :] = (row * inverse * weight[:].to(wide)).to(out.dtype)
        inverse_rms[tile_m, :] = inverse
    return out, inverse_rms


@helion.kernel(ignore_warnings=[helion.exc.TensorOperationInWrapper])
def rms_norm_bwd(
    grad_out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, inverse_rms: torch.Tensor
) -> Two:
    m, n = x.size()
    n = hl.specialize(n)
    grad_x = torch.empty_like(x)
    wide = torch.promote_types(x.dtype, torch.float32)
    block_m = hl.register_block_size(m)
    partial = torch.empty([helion.cdiv(m, block_m), n], dtype=wide, device=x.device)
    for block in hl.tile(m, block_size=block_m):
        weight_sum = hl.zeros([n], dtype=wide)
        for tile_m in hl.tile(block.begin, block.end):
            grad = grad_out[tile_m, :].to(wide)
            inverse = inverse_rms[tile_m, :]
            normed = x[tile_m, :].to(wide) * inverse
            weight_sum = weight_sum + (grad * normed).sum(0)
            scaled = grad * weight[:].to(wide)
            along = (scaled * normed).mean(-1, keepdim=True)
            grad_x[tile_m, :] = (scaled - normed * along) * inverse
        partial[block.id, :] = weight_sum
    return grad_x, partial.sum(0).to(weight.dtype)


class RMSNorm(torch.autograd.Function):
    """RMS normalisation of the rows of a matrix."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Run the forward kernel and keep what the backward needs."""
        out, inverse_rms = rms_norm(x, weight, eps)
        ctx.save_for_backward(x, weight, inverse_rms)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        """Run the backward kernel."""
        return *rms_norm_bwd(grad_out, *ctx.saved_tensors), None


def reference(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5) -> Two:
    x = x.double()
    inverse = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    return x * inverse * weight.double(), inverse


def reference_bwd(
    grad_out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, inverse_rms: torch.Tensor
) -> Two:
    grad, inverse = grad_out.double(), inverse_rms.double()
    normed = x.double() * inverse
    scaled = grad * weight.double()
    along = (scaled * normed).mean(-1, keepdim=True)
    return (scaled - normed * along) * inverse, (grad * normed).sum(0)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n = (2048, 4096) if device == "cuda" else (256, 1000)
    x = torch.randn(m, n, device=device, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(n, device=device, dtype=torch.bfloat16, requires_grad=True)
    grad_out = torch.randn_like(x)
    out = RMSNorm.apply(x, weight, 1e-5)
    out.backward(grad_out)
    exact_out, inverse = reference(x.detach(), weight.detach())
    forward = check_against(out.detach(), exact_out, reduction_length=n)
    exact = reference_bwd(grad_out, x.detach(), weight.detach(), inverse)
    backward = [
        check_against(grad, wanted, reduction_length=length).relative_norm
        for grad, wanted, length in zip((x.grad, weight.grad), exact, (n, m))
    ]
    print(f"rms_norm: forward {forward.max_ulp:.2f} ulp, backward error {max(backward):.1e}")


if __name__ == "__main__":
    main()
