"""Layer normalisation with affine parameters, forward and backward.

Shows several outputs, an optional tensor argument decided at compile time, a runtime float, and in
the backward per-block partial sums: each block of rows writes one row, the host adds them up.
"""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@helion.kernel
def layer_norm_fwd(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, eps: float = 1e-5
) -> Three:
    m = x.size(0)
    out = torch.empty_like(x)
    wide = torch.promote_types(x.dtype, torch.float32)
    mean = torch.empty([m], dtype=wide, device=x.device)
    rstd = torch.empty([m], dtype=wide, device=x.device)
    for tile_m in hl.tile(m):
        row = x[tile_m, :].to(wide)
        mu = row.mean(-1)
        centred = row - mu[:, None]
        inverse = torch.rsqrt((centred * centred).mean(-1) + eps)
        normed = centred * inverse[:, None] * weight[:].to(wide)
        if bias is not None:
            normed = normed + bias[:].to(wide)
        out[tile_m, :] = normed.to(x.dtype)
        mean[tile_m] = mu
        rstd[tile_m] = inverse
    return out, mean, rstd


@helion.kernel(ignore_warnings=[helion.exc.TensorOperationInWrapper])
def layer_norm_bwd(
    grad_out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    has_bias: hl.constexpr = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    m, n = x.size()
    n = hl.specialize(n)
    grad_x = torch.empty_like(x)
    wide = torch.promote_types(x.dtype, torch.float32)
    block_m = hl.register_block_size(m)
    num_blocks = helion.cdiv(m, block_m)
    partial_weight = torch.empty([num_blocks, n], dtype=wide, device=x.device)
    partial_bias = torch.empty([num_blocks, n], dtype=wide, device=x.device)
    for block in hl.tile(m, block_size=block_m):
        weight_sum = hl.zeros([n], dtype=wide)
        bias_sum = hl.zeros([n], dtype=wide)
        for tile_m in hl.tile(block.begin, block.end):
            grad = grad_out[tile_m, :].to(wide)
            inverse = rstd[tile_m][:, None]
            normed = (x[tile_m, :].to(wide) - mean[tile_m][:, None]) * inverse
            weight_sum = weight_sum + (grad * normed).sum(0)
            bias_sum = bias_sum + grad.sum(0)
            grad_normed = grad * weight[:].to(wide)
            along_mean = grad_normed.mean(-1, keepdim=True)
            along_normed = (grad_normed * normed).mean(-1, keepdim=True)
            grad_x[tile_m, :] = (grad_normed - along_mean - normed * along_normed) * inverse
        partial_weight[block.id, :] = weight_sum
        partial_bias[block.id, :] = bias_sum
    grad_weight = partial_weight.sum(0).to(weight.dtype)
    if has_bias:
        return grad_x, grad_weight, partial_bias.sum(0).to(weight.dtype)
    return grad_x, grad_weight, None


class LayerNorm(torch.autograd.Function):
    """Layer normalisation of the rows of a matrix."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float
    ) -> torch.Tensor:
        """Run the forward kernel and keep what the backward needs."""
        out, mean, rstd = layer_norm_fwd(x, weight, bias, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.has_bias = bias is not None
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Run the backward kernel."""
        return *layer_norm_bwd(grad_out, *ctx.saved_tensors, ctx.has_bias), None


def reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, eps: float = 1e-5
) -> Three:
    x = x.double()
    mean = x.mean(-1)
    centred = x - mean[:, None]
    rstd = torch.rsqrt((centred * centred).mean(-1) + eps)
    out = centred * rstd[:, None] * weight.double()
    return out if bias is None else out + bias.double(), mean, rstd


def reference_bwd(
    grad_out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    has_bias: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    grad = grad_out.double()
    inverse = rstd.double()[:, None]
    normed = (x.double() - mean.double()[:, None]) * inverse
    scaled = grad * weight.double()
    along = normed * (scaled * normed).mean(-1, keepdim=True)
    grad_x = (scaled - scaled.mean(-1, keepdim=True) - along) * inverse
    return grad_x, (grad * normed).sum(0), grad.sum(0) if has_bias else None


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n = 256, 1000
    x = torch.randn(m, n, device=device, requires_grad=True)
    weight = torch.randn(n, device=device, requires_grad=True)
    bias = torch.randn(n, device=device, requires_grad=True)
    grad_out = torch.randn(m, n, device=device)
    out = LayerNorm.apply(x, weight, bias, 1e-5)
    out.backward(grad_out)

    exact_out, mean, rstd = reference(x.detach(), weight.detach(), bias.detach())
    exact = reference_bwd(grad_out, x.detach(), weight.detach(), mean, rstd)
    forward = check_against(out.detach(), exact_out, reduction_length=n)
    grads = (x.grad, weight.grad, bias.grad)
    backward = [
        check_against(grad, wanted, reduction_length=length).relative_norm
        for grad, wanted, length in zip(grads, exact, (n, m, m))
    ]
    print(
        f"layer_norm: relative error forward {forward.relative_norm:.1e}, "
        f"backward {max(backward):.1e}"
    )


if __name__ == "__main__":
    main()
