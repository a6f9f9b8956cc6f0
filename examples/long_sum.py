"""Sum of long rows, in three forms.

`long_sum` keeps a whole row in registers or not, as its config says; `long_sum_looped` is the same
source pinned to a config that walks the row in chunks; `long_sum_manual` writes those chunks out.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def long_sum(x: torch.Tensor) -> torch.Tensor:
    m, _ = x.size()
    out = torch.empty([m], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        out[tile_m] = x[tile_m, :].sum(-1)
    return out


@helion.kernel(config=helion.Config(block_sizes=[1], reduction_loops=[4096], num_warps=16))
def long_sum_looped(x: torch.Tensor) -> torch.Tensor:
    m, _ = x.size()
    out = torch.empty([m], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        out[tile_m] = x[tile_m, :].sum(-1)
    return out


@helion.kernel
def long_sum_manual(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty([m], dtype=x.dtype, device=x.device)
    block_n = hl.register_block_size(n)
    for tile_m in hl.tile(m):
        # One running sum per lane; the lanes meet once, after the loop.
        acc = hl.zeros([tile_m, block_n], dtype=torch.float32)
        for tile_n in hl.tile(n, block_size=block_n):
            acc = acc + x[tile_m, tile_n].to(torch.float32)
        out[tile_m] = acc.sum(-1)
    return out


def reference(x: torch.Tensor) -> torch.Tensor:
    return x.double().sum(-1)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(4, 130_000, device=device)
    for kernel in (long_sum, long_sum_looped, long_sum_manual):
        report = check_against(kernel(x), reference(x), reduction_length=x.size(1))
        print(f"{kernel.name}: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
