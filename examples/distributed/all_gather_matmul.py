"""A product whose left matrix arrives in shards: work on a shard starts when its flag says so.

Another stream copies the shards of all ranks into one buffer and raises `progress[shard]` after
each. A program waits for the flag of the shard its rows belong to, by an atomic read that acquires
what was written before the flag.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.distributed.ranks import random_buffers
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def all_gather_matmul(
    gathered: torch.Tensor, w: torch.Tensor, progress: torch.Tensor
) -> torch.Tensor:
    """``gathered @ w`` of `[shards, rows, k]` and `[k, n]`; flags are int32."""
    shards, rows, k = gathered.size()
    n = w.size(1)
    out = torch.empty([shards, rows, n], dtype=w.dtype, device=w.device)
    for tile_s, tile_m, tile_n in hl.tile([shards, rows, n], block_size=[1, None, None]):
        shard = tile_s.begin
        seen = hl.atomic_add(progress, [shard], 0, sem="acquire")
        while seen == 0:
            seen = hl.atomic_add(progress, [shard], 0, sem="acquire")
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, gathered[shard, tile_m, tile_k], w[tile_k, tile_n])
        out[shard, tile_m, tile_n] = acc.to(out.dtype)
    return out.view(shards * rows, n)


def reference(gathered: torch.Tensor, w: torch.Tensor, progress: torch.Tensor) -> torch.Tensor:
    return gathered.double().flatten(0, 1) @ w.double()


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    world, rows, k, n = 4, 64, 128, 96
    shards = random_buffers(world, [rows, k], torch.bfloat16, device)
    w = random_buffers(1, [k, n], torch.bfloat16, device, seed=1)[0]
    gathered = torch.stack(shards)
    progress = torch.ones(world, dtype=torch.int32, device=device)
    args = (gathered, w, progress)
    report = check_against(all_gather_matmul(*args), reference(*args), reduction_length=k)
    print(f"all_gather_matmul: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
