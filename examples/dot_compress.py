"""The "dot compress" layer: out = x @ (x^T @ y + z) per batch, forward and backward.

One program owns one batch. The forward stores the compressed matrix and reads it back in a second
loop of the same program: program order holds, the compiler adds what the hardware needs.
"""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

Gradients = tuple[torch.Tensor, torch.Tensor, "torch.Tensor | None"]


@helion.kernel(static_shapes=True)
def dot_compress_fwd(
    x: torch.Tensor, y: torch.Tensor, z: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    b, m, d = x.size()
    d = hl.specialize(d)
    k = hl.specialize(y.size(2))
    out = torch.empty([b, m, k], dtype=x.dtype, device=x.device)
    xty = torch.empty([b, d, k], dtype=x.dtype, device=x.device)
    for tile_b in hl.tile(b, block_size=1):
        i = tile_b.begin
        acc = hl.zeros([d, k], dtype=torch.promote_types(x.dtype, torch.float32))
        for tile_m in hl.tile(m):
            acc = torch.addmm(acc, x[i, tile_m, :].t(), y[i, tile_m, :])
        if z is not None:
            acc = acc + z[i, :, :]
        xty[i, :, :] = acc.to(xty.dtype)
        for tile_m in hl.tile(m):
            out[i, tile_m, :] = torch.mm(x[i, tile_m, :], xty[i, :, :])
    return out, xty


@helion.kernel(static_shapes=True)
def dot_compress_bwd(
    grad_out: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    xty: torch.Tensor,
    has_z: hl.constexpr = False,
) -> Gradients:
    b, m, d = x.size()
    d = hl.specialize(d)
    k = hl.specialize(y.size(2))
    grad_x = torch.empty_like(x)
    grad_y = torch.empty_like(y)
    grad_z = torch.empty([b, d, k], dtype=x.dtype, device=x.device) if has_z else None
    for tile_b in hl.tile(b, block_size=1):
        i = tile_b.begin
        acc = hl.zeros([d, k], dtype=torch.promote_types(x.dtype, torch.float32))
        for tile_m in hl.tile(m):
            acc = torch.addmm(acc, x[i, tile_m, :].t(), grad_out[i, tile_m, :])
        grad_xty = acc.to(x.dtype)
        if has_z:
            grad_z[i, :, :] = grad_xty
        transposed = xty[i, :, :].t()
        for tile_m in hl.tile(m):
            grad_y[i, tile_m, :] = torch.mm(x[i, tile_m, :], grad_xty)
            through_out = torch.mm(grad_out[i, tile_m, :], transposed)
            through_xty = torch.mm(grad_xty, y[i, tile_m, :].t()).t()
            grad_x[i, tile_m, :] = through_out + through_xty
    return grad_x, grad_y, grad_z


class DotCompress(torch.autograd.Function):
    """The layer with both directions written as kernels."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor | None) -> torch.Tensor:
        """Run the forward kernel and keep what the backward needs."""
        out, xty = dot_compress_fwd(x, y, z)
        ctx.save_for_backward(x, y, xty)
        ctx.has_z = z is not None
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> Gradients:
        """Run the backward kernel."""
        return dot_compress_bwd(grad_out, *ctx.saved_tensors, ctx.has_z)


def dot_compress_fwd_eager(
    x: torch.Tensor, y: torch.Tensor, z: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    xty = x.transpose(1, 2) @ y
    xty = xty if z is None else xty + z
    return x @ xty, xty


def dot_compress_bwd_eager(
    grad_out: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    xty: torch.Tensor,
    has_z: bool = False,
) -> Gradients:
    grad_xty = x.transpose(1, 2) @ grad_out
    grad_x = grad_out @ xty.transpose(1, 2) + y @ grad_xty.transpose(1, 2)
    return grad_x, x @ grad_xty, grad_xty if has_z else None


def reference(
    x: torch.Tensor, y: torch.Tensor, z: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    xty = x.double().transpose(1, 2) @ y.double()
    xty = xty if z is None else xty + z.double()
    return x.double() @ xty, xty


def reference_bwd(
    grad_out: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    xty: torch.Tensor,
    has_z: bool = False,
) -> Gradients:
    grad, x, y = grad_out.double(), x.double(), y.double()
    grad_xty = x.transpose(1, 2) @ grad
    grad_x = grad @ xty.double().transpose(1, 2) + y @ grad_xty.transpose(1, 2)
    return grad_x, x @ grad_xty, grad_xty if has_z else None


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    b, m, d, k = 8, 419, 256, 64
    x = torch.randn(b, m, d, device=device, dtype=torch.bfloat16, requires_grad=True)
    y = torch.randn(b, m, k, device=device, dtype=torch.bfloat16, requires_grad=True)
    z = torch.randn(b, d, k, device=device, dtype=torch.bfloat16, requires_grad=True)
    grad_out = torch.randn(b, m, k, device=device, dtype=torch.bfloat16)
    out = DotCompress.apply(x, y, z)
    out.backward(grad_out)

    exact_out, exact_xty = reference(x.detach(), y.detach(), z.detach())
    exact = reference_bwd(grad_out, x.detach(), y.detach(), exact_xty, has_z=True)
    # x^T @ y, its gradient and both parts of grad_x are rounded to bf16 on the way.
    forward = check_against(
        out.detach(), exact_out, reduction_length=m * d, intermediate=torch.bfloat16
    )
    backward = [
        check_against(
            tensor.grad, wanted, reduction_length=m * d, intermediate=[torch.bfloat16] * roundings
        ).relative_norm
        for tensor, wanted, roundings in zip((x, y, z), exact, (4, 1, 0))
    ]
    print(
        f"dot_compress: relative error forward {forward.relative_norm:.1e}, "
        f"backward {max(backward):.1e}"
    )


if __name__ == "__main__":
    main()
