"""A long product split along the contracted axis in two phases of one launch.

The first loop gives each slice of the contracted axis to a program and writes partial sums; after
`hl.barrier()` the second loop adds them up. Unlike atomics the order of additions is fixed, so the
result is the same in every run.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.autotuner import PowerOfTwoFragment
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True, dot_precision="ieee")
def split_k_barrier(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = y.size(1)
    splits = hl.register_tunable("splits", PowerOfTwoFragment(1, 64, 8))
    slice_k = helion.next_power_of_2(helion.cdiv(k, splits))
    slices = helion.cdiv(k, slice_k)
    partial = torch.empty([slices, m, n], dtype=torch.float32, device=x.device)
    out = torch.empty([m, n], dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    for tile_m, tile_n, tile_s in hl.tile([m, n, k], block_size=[None, None, slice_k]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(tile_s.begin, tile_s.end):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        partial[tile_s.id, tile_m, tile_n] = acc
    hl.barrier()
    for tile_m, tile_n in hl.tile([m, n]):
        out[tile_m, tile_n] = partial[:, tile_m, tile_n].sum(0).to(out.dtype)
    return out


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.double() @ y.double()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n, k = 16, 16, 4096
    x = torch.randn(m, k, device=device)
    y = torch.randn(k, n, device=device)
    report = check_against(split_k_barrier(x, y), reference(x, y), reduction_length=k)
    print(f"split_k_barrier: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
