"""Gathered fp8 shards with scales of rows, times an fp8 matrix with scales of columns.

Shards of all ranks are tensors of their own, as symmetric memory presents them; the loop over ranks
is unrolled and each writes its rows of the result.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.distributed.ranks import random_buffers
from examples.fp8_matmul import quantise_rows
from tilesmith.numerics.compare import check_against

Tensors = tuple[torch.Tensor, ...]


@helion.kernel(static_shapes=True)
def fp8_scaled_all_gather_matmul(
    shards: Tensors, shard_scales: Tensors, w: torch.Tensor, w_scale: torch.Tensor
) -> torch.Tensor:
    rows, k = shards[0].size()
    n = w.size(1)
    out = torch.empty([len(shards), rows, n], dtype=torch.bfloat16, device=w.device)
    for tile_m, tile_n in hl.tile([rows, n]):
        scale_n = w_scale[tile_n][None, :]
        for rank, (shard, scales) in enumerate(zip(shards, shard_scales)):
            acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
            for tile_k in hl.tile(k):
                acc = hl.dot(shard[tile_m, tile_k], w[tile_k, tile_n], acc=acc)
            scaled = acc * scales[tile_m][:, None] * scale_n
            out[rank, tile_m, tile_n] = scaled.to(torch.bfloat16)
    return out.view(-1, n)


def reference(
    shards: Tensors, shard_scales: Tensors, w: torch.Tensor, w_scale: torch.Tensor
) -> torch.Tensor:
    x, scales = torch.cat([s.double() for s in shards]), torch.cat(shard_scales).double()
    return x @ w.double() * scales[:, None] * w_scale.double()


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    world, rows, k, n = 4, 48, 96, 80
    quantised = [quantise_rows(x) for x in random_buffers(world, [rows, k], torch.float32, device)]
    w, w_scale = quantise_rows(random_buffers(1, [n, k], torch.float32, device, seed=1)[0])
    shards, scales = (tuple(column) for column in zip(*quantised))
    args = (shards, scales, w.t(), w_scale)
    # Hopper's fp8 tensor cores keep about 14 bits of a partial sum.
    report = check_against(
        fp8_scaled_all_gather_matmul(*args),
        reference(*args),
        reduction_length=k,
        intermediate=torch.float16,
    )
    print(f"fp8_scaled_all_gather_matmul: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
