"""A product with a long epilogue: scale, residual, bias and gelu in one pass over the output.

The accumulator of a large tile holds many registers, and so does its epilogue. Both kernels finish
the tile from registers; the second also stores the value before the activation, for a backward.
"""

from __future__ import annotations

import torch
from torch.nn.functional import gelu

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

PRODUCT_SHARE, RESIDUAL_SHARE = 1.25, 0.5


@helion.kernel(static_shapes=True)
def linear_gelu(
    x: torch.Tensor, w: torch.Tensor, residual: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    m, k = x.size()
    n = w.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], w[tile_k, tile_n])
        mixed = acc * PRODUCT_SHARE + residual[tile_m, tile_n].to(torch.float32) * RESIDUAL_SHARE
        mixed = mixed + bias[tile_n].to(torch.float32)
        out[tile_m, tile_n] = gelu(mixed).to(x.dtype)
    return out


@helion.kernel(static_shapes=True)
def linear_gelu_with_input(
    x: torch.Tensor, w: torch.Tensor, residual: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    m, k = x.size()
    n = w.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    before = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], w[tile_k, tile_n])
        mixed = acc * PRODUCT_SHARE + residual[tile_m, tile_n].to(torch.float32) * RESIDUAL_SHARE
        mixed = mixed + bias[tile_n].to(torch.float32)
        before[tile_m, tile_n] = mixed.to(x.dtype)
        out[tile_m, tile_n] = gelu(mixed).to(x.dtype)
    return out, before


def reference(
    x: torch.Tensor, w: torch.Tensor, residual: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    return reference_with_input(x, w, residual, bias)[0]


def reference_with_input(
    x: torch.Tensor, w: torch.Tensor, residual: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    product = x.double() @ w.double()
    mixed = product * PRODUCT_SHARE + residual.double() * RESIDUAL_SHARE + bias.double()
    return gelu(mixed), mixed


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n, k = (2048, 2048, 2048) if device == "cuda" else (160, 192, 128)
    x, w, residual = (
        torch.randn(shape, device=device, dtype=torch.bfloat16)
        for shape in ((m, k), (k, n), (m, n))
    )
    args = (x, w, residual, torch.randn(n, device=device, dtype=torch.bfloat16))
    exact, exact_before = reference_with_input(*args)
    plain = check_against(linear_gelu(*args), exact, reduction_length=k)
    out, before = linear_gelu_with_input(*args)
    check_against(out, exact, reduction_length=k)
    second = check_against(before, exact_before, reduction_length=k)
    print(
        f"epilogue_subtiling: relative error {plain.relative_norm:.1e}, "
        f"before the activation {second.relative_norm:.1e}"
    )


if __name__ == "__main__":
    main()
