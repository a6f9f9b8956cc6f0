"""Matrix product followed by layer normalisation of its rows, in one kernel.

The number of columns is specialised, so one program holds whole rows of the fp32 product and
reduces them without a trip through memory.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def matmul_layernorm(
    x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    m, k = x.size()
    k2 = y.size(0)
    n = hl.specialize(y.size(1))
    assert k == k2, "inner sizes must agree"
    assert weight.size(0) == n, "one weight per column"
    assert bias.size(0) == n, "one bias per column"
    out = torch.empty([m, n], dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        centred = acc - acc.mean(-1, keepdim=True)
        rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
        out[tile_m, :] = centred * rstd * weight[:].to(torch.float32) + bias[:].to(torch.float32)
    return out


def reference(
    x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    product = x.double() @ y.double()
    return torch.nn.functional.layer_norm(product, [y.size(1)], weight.double(), bias.double(), eps)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, k, n = 128, 256, 400
    x = torch.randn(m, k, device=device, dtype=torch.float16)
    y = torch.randn(k, n, device=device, dtype=torch.float16)
    weight = torch.randn(n, device=device, dtype=torch.float16)
    bias = torch.randn(n, device=device, dtype=torch.float16)
    report = check_against(
        matmul_layernorm(x, y, weight, bias),
        reference(x, y, weight, bias),
        reduction_length=k,
    )
    print(f"matmul_layernorm: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
