"""Matrix products whose rows are normalised or reduced in the same kernel.

The siblings of `matmul_layernorm`: one program holds whole rows of the fp32 product, then divides
them by their root mean square or their length, takes their softmax, or sums them up to one number.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def matmul_rms_norm(
    x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    m, k = x.size()
    n = hl.specialize(y.size(1))
    out = torch.empty([m, n], dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        inverse = torch.rsqrt((acc * acc).mean(-1, keepdim=True) + eps)
        out[tile_m, :] = acc * inverse * weight[:].to(torch.float32)
    return out


@helion.kernel(static_shapes=True)
def matmul_softmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = hl.specialize(y.size(1))
    out = torch.empty([m, n], dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m, :] = torch.softmax(acc, dim=-1)
    return out


@helion.kernel(static_shapes=True)
def matmul_l2_normalize(x: torch.Tensor, y: torch.Tensor, eps: float = 1e-12) -> torch.Tensor:
    m, k = x.size()
    n = hl.specialize(y.size(1))
    out = torch.empty([m, n], dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        length = torch.sqrt((acc * acc).sum(-1, keepdim=True))
        out[tile_m, :] = acc / torch.clamp(length, min=eps)
    return out


@helion.kernel(static_shapes=True)
def matmul_logsumexp(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = hl.specialize(y.size(1))
    out = torch.empty([m], dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m] = torch.logsumexp(acc, dim=-1)
    return out


def reference_rms_norm(
    x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    product = x.double() @ y.double()
    return torch.nn.functional.rms_norm(product, [y.size(1)], weight.double(), eps)


def reference_softmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.double() @ y.double(), -1)


def reference_l2_normalize(x: torch.Tensor, y: torch.Tensor, eps: float = 1e-12) -> torch.Tensor:
    return torch.nn.functional.normalize(x.double() @ y.double(), dim=-1, eps=eps)


def reference_logsumexp(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x.double() @ y.double(), -1)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, k, n = 128, 256, 400
    x = torch.randn(m, k, device=device, dtype=torch.float16)
    # A product of small numbers: softmax of a large one is a choice of one column.
    y = torch.randn(k, n, device=device, dtype=torch.float16) * k**-0.5
    weight = torch.randn(n, device=device, dtype=torch.float16)
    for kernel, reference, args in (
        (matmul_rms_norm, reference_rms_norm, (x, y, weight)),
        (matmul_softmax, reference_softmax, (x, y)),
        (matmul_l2_normalize, reference_l2_normalize, (x, y)),
        (matmul_logsumexp, reference_logsumexp, (x, y)),
    ):
        report = check_against(kernel(*args), reference(*args), reduction_length=max(k, n))
        print(f"matmul_row_reduction: {kernel.name}, relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
