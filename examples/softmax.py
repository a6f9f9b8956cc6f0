"""Row softmax, in three forms.

One torch call on a row; the same spelled out; and the online form, which never holds a row: one
pass finds the maximum and the sum together, a second writes, both with one tuned block size.
"""

from __future__ import annotations

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
        peak = hl.full([tile_m], float("-inf"), dtype=torch.float32)
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


def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.double(), dim=1)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(1024, 1000, device=device, dtype=torch.bfloat16)
    for kernel in (softmax, softmax_decomposed, softmax_two_pass):
        report = check_against(kernel(x), reference(x), reduction_length=x.size(1))
        print(f"{kernel.name}: {report.max_ulp:.2f} ulp")


if __name__ == "__main__":
    main()
