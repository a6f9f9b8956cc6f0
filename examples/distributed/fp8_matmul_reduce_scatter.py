"""The product over ranks with fp8 operands: rows and columns are scaled before the parts are added.

Each rank has scales of its own, so they cannot wait until after the sum over ranks.
"""

from __future__ import annotations

import torch

from examples.distributed.matmul_reduce_scatter import reduce_shard
from examples.distributed.ranks import random_buffers
from examples.fp8_matmul import fp8_matmul, quantise_rows
from examples.fp8_matmul import reference as scaled_reference
from tilesmith.numerics.compare import check_against

Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def fp8_matmul_reduce_scatter(operands: list[Operands]) -> torch.Tensor:
    """All ranks' rows of the sum, one rank after the other."""
    buffers = tuple(fp8_matmul(*args).float() for args in operands)
    world = len(buffers)
    return torch.cat([reduce_shard(buffers, rank, torch.bfloat16) for rank in range(world)])


def reference(operands: list[Operands]) -> torch.Tensor:
    return torch.stack([scaled_reference(*args) for args in operands]).sum(0)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    world, m, k, n = 4, 64, 96, 80
    xs = random_buffers(world, [m, k], torch.float32, device)
    ws = random_buffers(world, [n, k], torch.float32, device, seed=1)
    operands: list[Operands] = []
    for x, w in zip(xs, ws):
        (x8, x_scale), (w8, w_scale) = quantise_rows(x), quantise_rows(w)
        operands.append((x8, w8.t(), x_scale, w_scale))
    # Each part is rounded to bf16; Hopper's fp8 tensor cores keep about 14 bits of a partial sum.
    report = check_against(
        fp8_matmul_reduce_scatter(operands),
        reference(operands),
        reduction_length=world * k,
        intermediate=[torch.bfloat16, torch.float16],
    )
    print(f"fp8_matmul_reduce_scatter: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
