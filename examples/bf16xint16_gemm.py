"""Products of bf16 by int16: the integers are converted inside the kernel, tile by tile.

Memory holds 16-bit integers on one side only; they become bf16 just before the product, so no
converted copy is ever written. The second kernel has the integers on the left.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def bf16xint16_gemm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    k2, n = w.size()
    assert k == k2, f"cannot multiply [{m}, {k}] by [{k2}, {n}]"
    out = torch.empty([m, n], dtype=torch.bfloat16, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            weights = w[tile_k, tile_n].to(torch.bfloat16)
            acc = hl.dot(x[tile_m, tile_k], weights, acc=acc)
        out[tile_m, tile_n] = acc.to(torch.bfloat16)
    return out


@helion.kernel(static_shapes=True)
def int16xbf16_gemm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    k2, n = w.size()
    assert k == k2, f"cannot multiply [{m}, {k}] by [{k2}, {n}]"
    out = torch.empty([m, n], dtype=torch.bfloat16, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            activations = x[tile_m, tile_k].to(torch.bfloat16)
            acc = hl.dot(activations, w[tile_k, tile_n], acc=acc)
        out[tile_m, tile_n] = acc.to(torch.bfloat16)
    return out


def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The exact product of the operands after their conversion to bf16."""
    return x.to(torch.bfloat16).double() @ w.to(torch.bfloat16).double()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n, k = (4096, 1280, 1024) if device == "cuda" else (160, 192, 256)
    x = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    w = torch.randint(-(2**15), 2**15, [k, n], device=device, dtype=torch.int16)
    right = check_against(bf16xint16_gemm(x, w), reference(x, w), reduction_length=k)
    y = torch.randint(-(2**15), 2**15, [m, k], device=device, dtype=torch.int16)
    z = torch.randn(k, n, device=device, dtype=torch.bfloat16)
    left = check_against(int16xbf16_gemm(y, z), reference(y, z), reduction_length=k)
    print(
        f"bf16xint16_gemm: relative error {right.relative_norm:.1e}, "
        f"integers on the left {left.relative_norm:.1e}"
    )


if __name__ == "__main__":
    main()
