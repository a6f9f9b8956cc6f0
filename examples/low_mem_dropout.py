"""Dropout that stores no mask: the backward draws it again from the seed.

`hl.rand` depends on the seed and on an element's position only, not on block sizes or the order of
programs. So the backward may even tile another way: here the forward runs over a flat view, the
backward over rows and columns, and both drop the same elements.
"""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def low_mem_dropout(p: float, x: torch.Tensor, seed: int) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    wide = torch.promote_types(x.dtype, torch.float32)
    flat_x, flat_out = x.reshape(-1), out.view(-1)
    scale = 1.0 / (1.0 - p)
    for tile in hl.tile(out.numel()):
        is_kept = hl.rand([tile], seed=seed) > p
        flat_out[tile] = torch.where(is_kept, flat_x[tile].to(wide) * scale, 0.0)
    return out


@helion.kernel
def low_mem_dropout_bwd(p: float, grad_out: torch.Tensor, seed: int) -> torch.Tensor:
    grad_x = torch.empty(grad_out.shape, dtype=grad_out.dtype, device=grad_out.device)
    wide = torch.promote_types(grad_out.dtype, torch.float32)
    scale = 1.0 / (1.0 - p)
    for tile_m, tile_n in hl.tile(grad_out.size()):
        is_kept = hl.rand([tile_m, tile_n], seed=seed) > p
        grad = grad_out[tile_m, tile_n].to(wide)
        grad_x[tile_m, tile_n] = torch.where(is_kept, grad * scale, 0.0)
    return grad_x


class LowMemDropout(torch.autograd.Function):
    """Dropout of a matrix with a given seed."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
        """Run the forward kernel and keep two numbers."""
        ctx.p, ctx.seed = p, seed
        return low_mem_dropout(p, x, seed)

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Run the backward kernel."""
        return low_mem_dropout_bwd(ctx.p, grad_out, ctx.seed), None, None


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    p, seed = 0.25, 123
    x = torch.randn(32, 1024, device=device, requires_grad=True)
    out = LowMemDropout.apply(x, p, seed)
    out.backward(torch.ones_like(out))
    is_kept = out.detach() != 0
    exact = torch.where(is_kept, x.detach().double() / (1 - p), 0.0)
    report = check_against(out.detach(), exact)
    # Same elements dropped both ways, and about as many as asked for.
    check_against(x.grad, is_kept.double() / (1 - p))
    share = is_kept.double().mean().item()
    assert abs(share - (1 - p)) < 0.02
    print(f"low_mem_dropout: kept {share:.1%}, {report.max_ulp:.2f} ulp")


if __name__ == "__main__":
    main()
