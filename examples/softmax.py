"""Row softmax, in three forms, and its gradient.

One torch call on a row; the same spelled out; and the online form, which never holds a row: one
pass finds the maximum and the sum together, a second writes, both with one tuned block size.
"""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def softmax(x: torch.Tensor) -> torch.Tensor:
    m, _ = x.size()
    out = torch.empty_like(x)
    for tile_m in hl.tile(m):
        out[tile_m, :] = torch.nn.functional.softmax(x[tile_m, :], dim=1)
    return out


@helion.kernel
def softmax_decomposed(x: torch.Tensor) -> torch.Tensor:
    m, _ = x.size()
    out = torch.empty_like(x)
    for tile_m in hl.tile(m):
        row = x[tile_m, :].to(torch.float32)
        peak = torch.amax(row, dim=1, keepdim=True)
        powers = torch.exp(row - peak)
        out[tile_m, :] = powers / torch.sum(powers, dim=1, keepdim=True)
    return out


@helion.kernel
def softmax_two_pass(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty_like(x)
    block_m = hl.register_block_size(m)
    block_n = hl.register_block_size(n)
    for tile_m in hl.tile(m, block_size=block_m):
        # Not -inf: a row that begins with nothing else must have powers of 0, not of a difference
        # of infinities.
        peak = hl.full([tile_m], torch.finfo(torch.float32).min, dtype=torch.float32)
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(n, block_size=block_n):
            values = x[tile_m, tile_n].to(torch.float32)
            new_peak = torch.maximum(peak, torch.amax(values, dim=1))
            powers = torch.exp(values - new_peak[:, None])
            total = total * torch.exp(peak - new_peak) + powers.sum(dim=1)
            peak = new_peak
        for tile_n in hl.tile(n, block_size=block_n):
            values = x[tile_m, tile_n].to(torch.float32)
            out[tile_m, tile_n] = torch.exp(values - peak[:, None]) / total[:, None]
    return out


@helion.kernel
def softmax_bwd(grad_out: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    grad_x = torch.empty_like(out)
    wide = torch.promote_types(out.dtype, torch.float32)
    for tile_m in hl.tile(out.size(0)):
        shares = out[tile_m, :].to(wide)
        grad = grad_out[tile_m, :].to(wide)
        mean = torch.sum(shares * grad, dim=1, keepdim=True)
        grad_x[tile_m, :] = shares * (grad - mean)
    return grad_x


class Softmax(torch.autograd.Function):
    """Softmax of the rows of a matrix."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Run the forward kernel and keep its result."""
        out = softmax(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> torch.Tensor:
        """Run the backward kernel."""
        (out,) = ctx.saved_tensors
        return softmax_bwd(grad_out, out)


def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.double(), dim=1)


def reference_bwd(grad_out: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    grad, shares = grad_out.double(), out.double()
    return shares * (grad - (shares * grad).sum(1, keepdim=True))


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = 4096 if device == "cuda" else 200
    x = torch.randn(rows, 1000, device=device, dtype=torch.bfloat16, requires_grad=True)
    for kernel in (softmax, softmax_decomposed, softmax_two_pass):
        report = check_against(
            kernel(x.detach()), reference(x.detach()), reduction_length=x.size(1)
        )
        print(f"{kernel.name}: {report.max_ulp:.2f} ulp")
    grad_out = torch.randn_like(x)
    out = Softmax.apply(x)
    out.backward(grad_out)
    report = check_against(
        x.grad, reference_bwd(grad_out, out.detach()), reduction_length=x.size(1)
    )
    print(f"softmax_bwd: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
