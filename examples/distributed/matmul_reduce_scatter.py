"""A product split along the contracted axis over ranks, each rank ending with its rows of the sum.

Every rank multiplies its slices into a buffer its peers can read; when all have done so, each rank
adds up the rows that are its own from all buffers. Between the two kernels stands the barrier of
the job.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.distributed.ranks import random_buffers
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def multiply_slice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """This rank's part of the product, in fp32."""
    m, k = x.size()
    n = w.size(1)
    out = torch.empty([m, n], dtype=torch.float32, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], w[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out


@helion.kernel(static_shapes=True)
def reduce_shard(
    peers: tuple[torch.Tensor, ...], rank: hl.constexpr, dtype: torch.dtype
) -> torch.Tensor:
    """The rows of the sum that belong to ``rank``."""
    m, n = peers[0].size()
    rows = m // len(peers)
    own = [peer[rank * rows : (rank + 1) * rows] for peer in peers]
    out = torch.empty([rows, n], dtype=dtype, device=peers[0].device)
    for tile_m, tile_n in hl.tile([rows, n]):
        total = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for part in own:
            total = total + part[tile_m, tile_n]
        out[tile_m, tile_n] = total.to(dtype)
    return out


def reference(xs: tuple[torch.Tensor, ...], ws: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The whole sum; rank `r` owns the `r`-th part of its rows."""
    return torch.stack([x.double() @ w.double() for x, w in zip(xs, ws)]).sum(0)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    world, m, k, n = 4, 128, 96, 80
    xs = random_buffers(world, [m, k], torch.bfloat16, device)
    ws = random_buffers(world, [k, n], torch.bfloat16, device, seed=1)
    buffers = tuple(multiply_slice(x, w) for x, w in zip(xs, ws))
    shards = [reduce_shard(buffers, rank, torch.bfloat16) for rank in range(world)]
    report = check_against(torch.cat(shards), reference(xs, ws), reduction_length=world * k)
    print(f"matmul_reduce_scatter: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
