"""A gated block, `2 x sigmoid(x @ w)`, forward and backward.

The forward keeps the gate for the backward. Both matrices are loaded whole along the contracted
axis, so the product is one statement; the weight's gradient adds up products over tiles of rows.
"""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def se_block_fwd(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m = x.size(0)
    acc_dtype = torch.promote_types(x.dtype, torch.float32)
    out = torch.empty_like(x)
    gate = torch.empty_like(x)
    for tile_m in hl.tile(m):
        scores = hl.dot(x[tile_m, :], w[:, :], out_dtype=acc_dtype)
        sigmoid = torch.sigmoid(scores)
        gate[tile_m, :] = sigmoid.to(x.dtype)
        out[tile_m, :] = (2 * x[tile_m, :].to(acc_dtype) * sigmoid).to(x.dtype)
    return out, gate


@helion.kernel(static_shapes=True)
def se_block_bwd_x(
    grad_out: torch.Tensor, x: torch.Tensor, w: torch.Tensor, gate: torch.Tensor
) -> torch.Tensor:
    m = x.size(0)
    acc_dtype = torch.promote_types(x.dtype, torch.float32)
    grad_x = torch.empty_like(x)
    for tile_m in hl.tile(m):
        sigmoid = gate[tile_m, :].to(acc_dtype)
        grad = grad_out[tile_m, :].to(acc_dtype)
        along_scores = 2 * grad * x[tile_m, :].to(acc_dtype) * sigmoid * (1 - sigmoid)
        through = hl.dot(along_scores.to(x.dtype), w[:, :].T, out_dtype=acc_dtype)
        grad_x[tile_m, :] = (2 * grad * sigmoid + through).to(x.dtype)
    return grad_x


@helion.kernel(static_shapes=True)
def se_block_bwd_w(grad_out: torch.Tensor, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    acc_dtype = torch.promote_types(x.dtype, torch.float32)
    grad_w = torch.empty([n, n], dtype=x.dtype, device=x.device)
    for tile_k, tile_n in hl.tile([n, n]):
        acc = hl.zeros([tile_k, tile_n], dtype=acc_dtype)
        for tile_m in hl.tile(m):
            sigmoid = gate[tile_m, tile_n].to(acc_dtype)
            along_scores = 2 * grad_out[tile_m, tile_n].to(acc_dtype) * sigmoid * (1 - sigmoid)
            along_scores = along_scores * x[tile_m, tile_n].to(acc_dtype)
            acc = torch.addmm(acc, x[tile_m, tile_k].T, along_scores.to(x.dtype))
        grad_w[tile_k, tile_n] = acc.to(x.dtype)
    return grad_w


class SEBlock(torch.autograd.Function):
    """``2 x sigmoid(x @ w)`` of a matrix and a square matrix."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """Run the forward kernel and keep the gate."""
        out, gate = se_block_fwd(x, w)
        ctx.save_for_backward(x, w, gate)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the two backward kernels."""
        x, w, gate = ctx.saved_tensors
        return se_block_bwd_x(grad_out, x, w, gate), se_block_bwd_w(grad_out, x, gate)


def reference(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    gate = torch.sigmoid(x.double() @ w.double())
    return 2 * x.double() * gate, gate


def reference_bwd_x(
    grad_out: torch.Tensor, x: torch.Tensor, w: torch.Tensor, gate: torch.Tensor
) -> torch.Tensor:
    grad, sigmoid = grad_out.double(), gate.double()
    along_scores = 2 * grad * x.double() * sigmoid * (1 - sigmoid)
    return 2 * grad * sigmoid + along_scores @ w.double().T


def reference_bwd_w(grad_out: torch.Tensor, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    sigmoid = gate.double()
    return x.double().T @ (2 * grad_out.double() * x.double() * sigmoid * (1 - sigmoid))


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n = (1024, 256) if device == "cuda" else (192, 96)
    x = torch.randn(m, n, device=device, requires_grad=True)
    w = (torch.randn(n, n, device=device) / n**0.5).requires_grad_()
    grad_out = torch.randn(m, n, device=device)
    out = SEBlock.apply(x, w)
    out.backward(grad_out)
    exact, gate = reference(x.detach(), w.detach())
    # fp32 products run in tf32 on a GPU, whose mantissa is fp16's.
    forward = check_against(
        out.detach(), exact, reduction_length=n, intermediate=torch.float16
    ).relative_norm
    grads = (
        (x.grad, reference_bwd_x(grad_out, x.detach(), w.detach(), gate), n),
        (w.grad, reference_bwd_w(grad_out, x.detach(), gate), m),
    )
    backward = [
        check_against(
            grad, wanted, reduction_length=length, intermediate=torch.float16
        ).relative_norm
        for grad, wanted, length in grads
    ]
    print(f"se_block: relative error forward {forward:.1e}, backward {max(backward):.1e}")


if __name__ == "__main__":
    main()
